#!/usr/bin/env bash
# Starts Envoy, with a self-signed certificate where there is none, and stops it without cutting what
# runs: told to end, it goes on serving for LINGER_S (until whoever sends here has looked elsewhere),
# then has up to DRAIN_S for what is in progress. Arguments go to Envoy.
set -euo pipefail
folder=${ENVOY_FOLDER:-/etc/envoy}
admin=${ENVOY_ADMIN:-127.0.0.1:9901}
linger_s=${LINGER_S:-0}
drain_s=${DRAIN_S:-8}

[ -e "$folder/tls/tls.crt" ] || "$(dirname "$0")/self_signed.sh" "$folder/tls" localhost "$(uname -n)"

# ask METHOD PATH: what the admin interface answers. There is no HTTP client in the image.
ask() {
    exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}"
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" "$2" >&3
    cat <&3
    exec 3>&-
}

in_progress() {
    ask GET '/stats?filter=%5Ehttp%5C.(public|plain|insides)%5C.downstream_rq_active$' \
        | grep -o 'downstream_rq_active: [1-9]'
}

stop() {
    trap - TERM INT
    # From now on connections are closed after their next answer.
    ask POST '/drain_listeners?graceful&skip_exit' >/dev/null || true
    sleep "$linger_s"
    local until=$((SECONDS + drain_s))
    while [ "$SECONDS" -lt "$until" ] && in_progress >/dev/null 2>&1; do sleep 0.2; done
    kill -TERM "$envoy"
}

envoy -c "$folder/envoy.yaml" --drain-time-s "$((linger_s + drain_s))" "$@" &
envoy=$!
trap stop TERM INT
# A signal ends the first wait; the second one is for Envoy's own end.
wait "$envoy" || true
wait "$envoy"
