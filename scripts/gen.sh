#!/usr/bin/env bash
# Turns proto/ into gen/. `gen.sh --check` compares instead, and fails on a difference.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
bin=$(dirname "$(command -v "$python")")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

mapfile -t protos < <(cd proto && find . -name '*.proto' | sort | sed 's#^\./##')
PATH="$bin:$PATH" "$python" -m grpc_tools.protoc -I proto \
    --python_out="$out" --grpc_python_out="$out" --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" \
    "${protos[@]}"
find "$out/cohabit" -type d -exec touch {}/__init__.py \;

if [ "${1:-}" = --check ]; then
    if git check-ignore --no-index "${protos[@]/#/proto/}" gen/cohabit/*/v1; then
        echo "these are ignored by git, so a clone would lack them: mend .gitignore" >&2
        exit 1
    fi
    diff -r -x __pycache__ "$out/cohabit" gen/cohabit \
        || { echo "gen/ is not what proto/ says: run 'make gen' and commit" >&2; exit 1; }
else
    rm -rf gen/cohabit
    cp -r "$out/cohabit" gen/cohabit
fi
