#!/usr/bin/env bash
# buf lint and format; and, from the first tag on, no breaking change against the last one.
set -euo pipefail
cd "$(dirname "$0")/.."
buf=$(realpath "${BUF:-.venv/bin/buf}")
python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# workspace DIR: completes a copy of proto/ and buf.yaml by a module with google/api/*.proto. buf would
# fetch it from its registry; the installed package has the same files.
workspace() {
    local foreign
    foreign=$("$python" -c 'import google.api.http_pb2 as it, pathlib; print(pathlib.Path(it.__file__).parent)')
    mkdir -p "$1/foreign/google/api"
    cp "$foreign"/{annotations,http}.proto "$1/foreign/google/api/"
    sed -i 's|^  - path: proto$|&\n  - path: foreign\n    lint: {ignore: [foreign]}\n    breaking: {ignore: [foreign]}|' "$1/buf.yaml"
}

mkdir "$work/now"
cp -r proto buf.yaml "$work/now/"
workspace "$work/now"
(cd "$work/now" && "$buf" lint)
"$buf" format -d --exit-code proto
if tag=$(git describe --tags --abbrev=0 2>/dev/null); then
    mkdir "$work/then"
    git archive "$tag" proto buf.yaml | tar -x -C "$work/then"
    workspace "$work/then"
    (cd "$work/now" && "$buf" breaking --against ../then)
fi
