"""What users of minio-py do, against the door at the address that is given with a key and its secret."""

import io
import sys

from minio import Minio
from minio.commonconfig import CopySource, Tags
from minio.deleteobjects import DeleteObject
from minio.error import S3Error

door, key, secret = sys.argv[1:]
client = Minio(door, access_key=key, secret_key=secret, secure=False, region="us-east-1")
client.make_bucket("data")
assert client.bucket_exists("data") and not client.bucket_exists("other")

small = b"It flows. " * 1000
client.put_object("data", "a/small", io.BytesIO(small), len(small), metadata={"origin": "lab"})
answer = client.get_object("data", "a/small", offset=10, length=10)
try:
    assert answer.read() == small[10:20]
finally:
    answer.close()
    answer.release_conn()
assert client.stat_object("data", "a/small").metadata["x-amz-meta-origin"] == "lab"

large = bytes(range(256)) * (18 << 12)
client.put_object("data", "b/large", io.BytesIO(large), -1, part_size=6 << 20)
client.copy_object("data", "b/copied", CopySource("data", "b/large"))
answer = client.get_object("data", "b/copied")
try:
    assert answer.read() == large, "the copy came back changed"
finally:
    answer.close()
    answer.release_conn()

names = [found.object_name for found in client.list_objects("data", recursive=True)]
assert names == ["a/small", "b/copied", "b/large"], names
assert [found.object_name for found in client.list_objects("data")] == ["a/", "b/"]

tags = Tags.new_object_tags()
tags["project"] = "penstock"
client.set_object_tags("data", "a/small", tags)
assert client.get_object_tags("data", "a/small") == {"project": "penstock"}

try:
    client.get_object("data", "none")
    raise AssertionError("there is no such object")
except S3Error as error:
    assert error.code == "NoSuchKey", error

errors = list(client.remove_objects("data", [DeleteObject(name) for name in names]))
assert errors == [], errors
client.remove_bucket("data")
print("all is well")
