"""minio-py, which asks for a temporary key by itself. Arguments: both addresses of the door, certificate, CA."""

import io
import sys

from minio import Minio
from minio.credentials import CertificateIdentityProvider

secure_door, door, certificate, authority = sys.argv[1:]
provider = CertificateIdentityProvider(sts_endpoint=f"https://{secure_door}", cert_file=certificate,
                                       key_file=certificate, ca_certs=authority, duration_seconds=7200)
given = provider.retrieve()
assert given.session_token and not given.is_expired(), given.expiration
client = Minio(door, credentials=provider, secure=False, region="us-east-1")
client.make_bucket("data")
client.put_object("data", "a", io.BytesIO(b"It flows."), 9)
answer = client.get_object("data", "a")
try:
    assert answer.read() == b"It flows."
finally:
    answer.close()
    answer.release_conn()
print("all is well")
