#!/usr/bin/env bash
# Turns proto/ into gen/, and what of it is offered as REST into the descriptors that Envoy reads.
# `gen.sh --check` compares instead, and fails on a difference.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
bin=$(dirname "$(command -v "$python")")
descriptors=deploy/envoy/cohabit.pb
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# google/api/*.proto, which the annotations come from, lie beside the Python made of them.
foreign=$("$python" -c 'import google.api.http_pb2 as it, pathlib; print(pathlib.Path(it.__file__).parents[2])')
protoc=("$python" -m grpc_tools.protoc -I proto -I "$foreign")

mapfile -t protos < <(cd proto && find . -name '*.proto' | sort | sed 's#^\./##')
PATH="$bin:$PATH" "${protoc[@]}" \
    --python_out="$out" --grpc_python_out="$out" --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" \
    "${protos[@]}"
find "$out/cohabit" -type d -exec touch {}/__init__.py \;

# Refusals travel as google.rpc.Status, and Envoy can only write out what it has a descriptor of.
"${protoc[@]}" --include_imports --descriptor_set_out="$out/cohabit.pb" \
    cohabit/broker/v1/broker.proto cohabit/scheduler/v1/scheduler.proto \
    cohabit/jobs/v1/jobs.proto google/rpc/error_details.proto

if [ "${1:-}" = --check ]; then
    if git check-ignore --no-index "${protos[@]/#/proto/}" gen/cohabit/*/v1 "$descriptors"; then
        echo "these are ignored by git, so a clone would lack them: mend .gitignore" >&2
        exit 1
    fi
    diff -r -x __pycache__ "$out/cohabit" gen/cohabit && cmp "$out/cohabit.pb" "$descriptors" \
        || { echo "gen/ is not what proto/ says: run 'make gen' and commit" >&2; exit 1; }
else
    rm -rf gen/cohabit
    cp -r "$out/cohabit" gen/cohabit
    cp "$out/cohabit.pb" "$descriptors"
fi
