#!/bin/sh
# Makes the certificates and configurations of the compose file's site, once.
#
# Usage: setup.sh [DIR]
#
# Only the mover that holds the tape library's folder has its drives: two processes cannot share a virtual library.
set -eu
dir=${1:-/var/lib/penstock/site}
[ -e "$dir/gateway.toml" ] && exit 0
ca=$dir/certificates
mkdir -p "$dir/users"

penstock cert init "$ca" --site compose
penstock cert trust --authority "$ca" "$ca/trusted"
penstock cert gateway --authority "$ca" gateway1 --out "$ca/gateway1.pem" \
    --host localhost --host 127.0.0.1 --host gateway --host 172.28.11.10
penstock cert mover --authority "$ca" mover1 --out "$ca/mover1.pem" --host mover1 --host 172.28.11.11
penstock cert mover --authority "$ca" mover2 --out "$ca/mover2.pem" --host mover2 --host 172.28.11.12
penstock cert admin --authority "$ca" admin --out "$ca/admin.pem"
penstock cert user --authority "$ca" alice --out "$dir/users/alice.pem"

tls() {
    cat <<TOML
[tls]
certificate = "$ca/$1.pem"
key = "$ca/$1.pem"
site_ca = "$ca/ca.pem"
TOML
}

for number in 1 2; do
    cat >"$dir/mover$number.toml" <<TOML
name = "mover$number"

[control]
listen = "172.28.11.1$number:2814"

$(tls mover$number)
clients = "$ca/trusted"

[data]
listen = ["172.28.11.1$number"]

[[volumes]]
label = "mover$number.disk1"
folder = "$dir/disk$number"
create = true
TOML
done
cat >>"$dir/mover1.toml" <<TOML

[[libraries]]
name = "library1"
kind = { type = "virtual", folder = "$dir/tape", drives = 2, cartridges = ["PEN001L8", "PEN002L8", "PEN003L8", "PEN004L8"], capacity = "100 GiB" }

[[drives]]
name = "drive1"
library = "library1"
index = 0

[[drives]]
name = "drive2"
library = "library1"
index = 1
TOML

cat >"$dir/gateway.toml.new" <<TOML
name = "gateway1"
data = "$dir/gateway"

[catalogue]
url = "postgres://penstock@catalogue/penstock"

$(tls gateway1)

[identity]
trust = "$ca/trusted"

[ftp]
listen = ["0.0.0.0:2811"]

[admin]
listen = ["0.0.0.0:2812"]
metrics = ["0.0.0.0:2813"]

[[movers]]
name = "mover1"
address = "172.28.11.11:2814"

[[movers]]
name = "mover2"
address = "172.28.11.12:2814"
TOML
mv "$dir/gateway.toml.new" "$dir/gateway.toml"
echo "the site's first user is alice: map the certificate with"
echo "  penstock admin map add '/O=Penstock site compose/OU=user/CN=alice' alice"
