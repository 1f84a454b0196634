#!/bin/sh
# self_signed.sh FOLDER [NAME …]: a certificate for these names (localhost without), valid for a year,
# as FOLDER/tls.crt and tls.key. For trying; in earnest take one that clients trust.
set -eu
folder=$1
shift
[ $# -gt 0 ] || set -- localhost
names="IP:127.0.0.1,IP:::1"
for name in "$@"; do names="$names,DNS:$name"; done
umask 077
mkdir -p "$folder"
# Moved into place, for that is what Envoy watches for; the key first, it is read with its certificate.
said=$(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
    -subj "/CN=$1" -addext "subjectAltName=$names" \
    -keyout "$folder/.tls.key" -out "$folder/.tls.crt" 2>&1) || { echo "$said" >&2; exit 1; }
mv "$folder/.tls.key" "$folder/tls.key"
mv "$folder/.tls.crt" "$folder/tls.crt"
