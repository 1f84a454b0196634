#!/usr/bin/env bash
# Whether Envoy serves, for a HEALTHCHECK: exit 0 or 1. There is no HTTP client in the image.
set -euo pipefail
admin=${ENVOY_ADMIN:-127.0.0.1:9901}
exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}"
printf 'GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
grep -q '^LIVE' <&3
