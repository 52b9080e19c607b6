"""What users of boto3 do with a temporary key, and what they are told of one that is good no more.

Arguments: the door's address; key, secret and token of a good key; the same of an expired one.
"""

import io
import sys

import boto3
import urllib3
from boto3.s3.transfer import TransferConfig
from botocore.client import Config
from botocore.exceptions import ClientError
from urllib.parse import urlencode

door, key, secret, token, old_key, old_secret, old_token = sys.argv[1:]


def client(*credentials):
    return boto3.client("s3", endpoint_url=f"http://{door}", aws_access_key_id=credentials[0],
                        aws_secret_access_key=credentials[1], aws_session_token=credentials[2],
                        region_name="us-east-1", config=Config(signature_version="s3v4",
                                                               s3={"addressing_style": "path"}))


def refusal(*credentials):
    try:
        client(*credentials).list_buckets()
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    raise AssertionError("let in")


s3 = client(key, secret, token)
s3.create_bucket(Bucket="data")
large = bytes(range(256)) * (18 << 12)
s3.upload_fileobj(io.BytesIO(large), "data", "large", Config=TransferConfig(multipart_threshold=6 << 20,
                                                                            multipart_chunksize=6 << 20))
assert s3.head_object(Bucket="data", Key="large")["ETag"].endswith('-3"')
back = io.BytesIO()
s3.download_fileobj("data", "large", back)
assert back.getvalue() == large, "the object came back changed"

url = s3.generate_presigned_url("put_object", Params={"Bucket": "data", "Key": "signed"}, ExpiresIn=60)
assert "X-Amz-Security-Token=" in url, url
assert urllib3.request("PUT", url, body=b"by a URL").status == 200
url = s3.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "signed"}, ExpiresIn=60)
assert urllib3.request("GET", url).data == b"by a URL"
cut = url.replace(f"X-Amz-Security-Token={token}", "X-Amz-Security-Token=x")
assert cut != url and urllib3.request("GET", cut).status == 403, "the token is a part of what is signed"

form = s3.generate_presigned_post("data", "posted", ExpiresIn=60)
fields = {**form["fields"], "file": ("f", b"by a form")}
answer = urllib3.request("POST", form["url"], fields=fields)
assert answer.status == 403 and b"X-Amz-Security-Token" in answer.data, answer.data
answer = urllib3.request("POST", f"{form['url']}?{urlencode({'X-Amz-Security-Token': token})}", fields=fields)
assert answer.status == 204, answer.data
assert s3.get_object(Bucket="data", Key="posted")["Body"].read() == b"by a form"

assert refusal(key, secret, old_token) == ("InvalidToken", 400), "the token of another key"
assert refusal(key, secret, "x" + token[1:]) == ("InvalidToken", 400)
assert refusal(key, secret, None) == ("InvalidAccessKeyId", 403)
assert refusal(key, secret[:-1] + "!", token) == ("SignatureDoesNotMatch", 403)
assert refusal(old_key, old_secret, old_token) == ("ExpiredToken", 400)
print("all is well")
