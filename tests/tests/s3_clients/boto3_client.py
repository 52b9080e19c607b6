"""What users of boto3 do, against the door at the address that is given with a key and its secret."""

import hashlib
import io
import sys
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.client import Config
from botocore.exceptions import ClientError

door, key, secret = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=f"http://{door}", aws_access_key_id=key, aws_secret_access_key=secret,
                  region_name="us-east-1", config=Config(signature_version="s3v4", s3={"addressing_style": "path"}))


def code(call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    raise AssertionError(f"{call.__name__} succeeded")


s3.create_bucket(Bucket="data")
small = b"It flows. " * 1000
put = s3.put_object(Bucket="data", Key="a/small", Body=small, Metadata={"origin": "lab"}, ContentType="text/plain",
                    StorageClass="STANDARD")
assert put["ETag"].strip('"') == hashlib.md5(small).hexdigest(), put
got = s3.get_object(Bucket="data", Key="a/small")
assert got["Body"].read() == small and got["Metadata"] == {"origin": "lab"} and got["ContentType"] == "text/plain"
part = s3.get_object(Bucket="data", Key="a/small", Range="bytes=10-19")
assert part["Body"].read() == small[10:20] and part["ContentRange"] == f"bytes 10-19/{len(small)}"
assert code(s3.get_object, Bucket="data", Key="a/small", IfNoneMatch=put["ETag"]) == "304"
assert code(s3.put_object, Bucket="data", Key="a/small", Body=b"", IfNoneMatch="*") == "PreconditionFailed"
assert code(s3.get_object, Bucket="data", Key="none") == "NoSuchKey"

large = bytes(range(256)) * (18 << 12)
s3.upload_fileobj(io.BytesIO(large), "data", "b/large", Config=TransferConfig(multipart_threshold=6 << 20,
                                                                              multipart_chunksize=6 << 20))
head = s3.head_object(Bucket="data", Key="b/large")
assert head["ContentLength"] == len(large) and head["ETag"].endswith('-3"'), head
s3.copy({"Bucket": "data", "Key": "b/large"}, "data", "b/copied", Config=TransferConfig(multipart_threshold=6 << 20,
                                                                                        multipart_chunksize=6 << 20))
back = io.BytesIO()
s3.download_fileobj("data", "b/copied", back)
assert back.getvalue() == large, "the copy came back changed"

keys = [item["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket="data", PaginationConfig={
    "PageSize": 1}) for item in page["Contents"]]
assert keys == ["a/small", "b/copied", "b/large"], keys
prefixes = s3.list_objects_v2(Bucket="data", Delimiter="/")["CommonPrefixes"]
assert [one["Prefix"] for one in prefixes] == ["a/", "b/"], prefixes
url = s3.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "a/small"}, ExpiresIn=60)
with urllib.request.urlopen(url) as answer:
    assert answer.read() == small

s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
second = s3.put_object(Bucket="data", Key="a/small", Body=b"second")["VersionId"]
s3.delete_object(Bucket="data", Key="a/small")
assert code(s3.get_object, Bucket="data", Key="a/small") == "NoSuchKey"
assert s3.get_object(Bucket="data", Key="a/small", VersionId=second)["Body"].read() == b"second"
listed = s3.list_object_versions(Bucket="data", Prefix="a/")
assert len(listed["Versions"]) == 2 and len(listed["DeleteMarkers"]) == 1, listed
assert listed["DeleteMarkers"][0]["IsLatest"], listed

everything = s3.list_object_versions(Bucket="data")
gone = [{"Key": one["Key"], "VersionId": one["VersionId"]}
        for one in everything["Versions"] + everything["DeleteMarkers"]]
assert "Errors" not in s3.delete_objects(Bucket="data", Delete={"Objects": gone})
s3.delete_bucket(Bucket="data")
print("all is well")
