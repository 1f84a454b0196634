#!/usr/bin/env bash
# buf lint and format; and, from the first tag on, no breaking change against the last one.
set -euo pipefail
cd "$(dirname "$0")/.."
buf=${BUF:-.venv/bin/buf}
"$buf" lint
"$buf" format -d --exit-code proto
if tag=$(git describe --tags --abbrev=0 2>/dev/null); then
    "$buf" breaking --against ".git#tag=$tag"
fi
