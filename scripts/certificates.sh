#!/bin/sh
# Certificates with which the services of one house show each other who they are: `tls` in
# cohabit.yaml. Usage: scripts/certificates.sh FOLDER [DAYS]
#
# The first run makes an authority (ca.pem, and ca.key, which only this script needs: keep it off the
# machines that serve) and a certificate for services (service.pem, service.key). Every other run
# makes a new certificate by the same authority; services that run take it up by themselves.
set -eu
umask 077

folder=${1:?"usage: scripts/certificates.sh FOLDER [DAYS]"}
days=${2:-365}
mkdir -p "$folder"
cd "$folder"
draft=$(mktemp -d)
trap 'rm -r "$draft"' EXIT

quietly() {  # openssl, which is heard only when it fails
    openssl "$@" 2>"$draft/said" || { cat "$draft/said" >&2; exit 1; }
}

if [ ! -e ca.pem ]; then
    quietly req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc \
        -keyout ca.key -out ca.pem -days 3650 -subj "/CN=Cohabit authority" \
        -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
        -addext "keyUsage=critical,keyCertSign,cRLSign"
fi

cat >"$draft/extensions" <<EOF
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:cohabit.internal
EOF
quietly req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc \
    -keyout "$draft/service.key" -out "$draft/request" -subj "/CN=cohabit.internal"
quietly x509 -req -in "$draft/request" -CA ca.pem -CAkey ca.key -days "$days" \
    -extfile "$draft/extensions" -out "$draft/service.pem"
mv "$draft/service.key" "$draft/service.pem" .
chmod 644 ca.pem service.pem
echo "$(pwd): service.pem is good for $days days"
