#!/usr/bin/env bash
# Renders deploy/k8s/manifests from the chart. `render_manifests.sh --check` compares instead, and
# fails on a difference.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$("${PYTHON:-.venv/bin/python}" -P scripts/kube_tools.py)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

render() {  # file, arguments of helm
    local file=$1
    shift
    {
        echo "# Rendered from deploy/k8s/cohabit by scripts/render_manifests.sh: change that, not this."
        env -u KUBECONFIG "$tools/helm" template cohabit deploy/k8s/cohabit "$@" 2> "$out/said" \
            || { cat "$out/said" >&2; exit 1; }
    } > "$out/$file"
}

render cpu.yaml
render card.yaml --set gpu.sharing=whole
rm -f "$out/said"

if [ "${1:-}" = --check ]; then
    diff -r "$out" deploy/k8s/manifests \
        || { echo "deploy/k8s/manifests is not what the chart says: run scripts/render_manifests.sh" >&2; exit 1; }
else
    rm -rf deploy/k8s/manifests
    mkdir -p deploy/k8s/manifests
    cp "$out"/* deploy/k8s/manifests/
fi
