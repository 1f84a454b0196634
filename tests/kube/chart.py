"""The chart, rendered by the real Helm, and the values that its tests go through."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.schemas import Object

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "k8s" / "cohabit"
MANIFESTS = ROOT / "deploy" / "k8s" / "manifests"
_WITHIN_S = 60.0

Values = Mapping[str, Any]

_DIFFUSION = {
    "models": {
        "sdxl": {
            "family": "sdxl",
            "files": {
                "model": {"path": "sdxl.safetensors", "source": "hf:some/one/sdxl.safetensors"}
            },
        }
    }
}
_PRETENDED = {
    "kind": "language",
    "lane": "chat",
    "resident_mib": 900,
    "context_tokens": 4096,
}

MATRIX: Mapping[str, Values] = {
    "default": {},
    "whole": {
        "gpu": {"sharing": "whole"},
        "config": {"diffusion": _DIFFUSION},
        "nodeSelector": {"kubernetes.io/hostname": "gpu-1"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    },
    "default-runtime": {"gpu": {"sharing": "whole", "runtimeClassName": "", "visibleDevices": 0}},
    "slices": {"gpu": {"sharing": "timeSlicing", "runtimeClassName": ""}},
    "mps": {"gpu": {"sharing": "mps", "resourceName": "nvidia.com/gpu.shared"}},
    "simulated": {
        "config": {
            "llm": None,
            "matte": None,
            "jobs": None,
            "broker": {"device": "simulated", "capacity_mib": 32_000},
            "simulated": {"models": {"pretended": _PRETENDED}},
        }
    },
    "trusting-nobody": {
        "tls": {"enabled": True, "existingSecret": "house-tls"},
        "keys": {"content": "me: {hash: 'sha256:" + "0" * 64 + "'}\n"},
        "networkPolicy": {
            "internet": False,
            "edgeFrom": [{"namespaceSelector": {"matchLabels": {"name": "front"}}}],
        },
        "podDisruptionBudget": {"protectInsides": True},
        "config": {"traces": {"endpoint": "http://collector.telemetry:4317"}},
    },
    "many-edges": {
        "fullnameOverride": "house",
        "edge": {"autoscaling": {"enabled": True}, "service": {"sessionAffinity": "ClientIP"}},
        "ingress": {"enabled": True, "host": "models.example.org", "tlsSecret": "front-tls"},
        "keys": {"existingSecret": "house-keys"},
        "images": {"registry": "registry.example.org/team", "pullSecrets": ["registry"]},
        "storage": {"className": "local-path", "models": {"existingClaim": "weights"}},
        "priorityClassName": "serving",
    },
    "other-peoples-kinds": {
        "tls": {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"name": "house"}}},
        "gateway": {"enabled": True, "parentRefs": [{"name": "front"}], "hostnames": ["a.example"]},
        "monitoring": {
            "serviceMonitor": {"enabled": True, "keySecret": "prometheus-key"},
            "rules": "groups: [{name: house, rules: [{alert: Down, expr: up == 0}]}]",
        },
    },
    "fronted": {
        "envoy": {"enabled": True, "replicas": 2},
        "edge": {"replicas": 2},
        "ingress": {"enabled": True, "className": "nginx"},
    },
    "fronted-with-certificates": {
        "envoy": {"enabled": True, "tlsSecret": "front-tls"},
        "tls": {"enabled": True, "existingSecret": "house-tls"},
        "config": {"jobs": None},
        "networkPolicy": {"edgeFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]},
    },
    "bare": {
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "fetch": {"enabled": False},
        "bindAddress": "[::]",
        "configFile": "scheduler:\nllm:\njobs:\n",
    },
}
"""Sets of values, each with something that no other has."""

RUNTIME = frozenset({"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"})
"""Variables that NVIDIA's container runtime reads, which makes the container."""

OUTSIDE = frozenset(
    {
        ("Secret", "cohabit-tls"),  # made by cert-manager
        ("Secret", "front-tls"),
        ("Secret", "hub"),
        ("Secret", "house-keys"),
        ("Secret", "house-tls"),
        ("Secret", "prometheus-key"),
        ("PersistentVolumeClaim", "weights"),
    }
)
"""What the sets name and the chart does not make."""


@functools.cache
def tools() -> Path:
    """The folder of helm and kubectl; without them the test is skipped, and says so."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "kube_tools.py")],
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"THE CHART IS NOT TESTED: {done.stderr.strip()}")
    return Path(done.stdout.strip())


def helm(*arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm, which sees no cluster but one that is named to it."""
    where = home or Path("/nonexistent")
    folders = {f"HELM_{name}_HOME": str(where) for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [str(tools() / "helm"), *arguments],
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        env={**os.environ, **folders, "KUBECONFIG": str(where / "no-cluster")},
        check=False,
    )


def template(values: Values, *arguments: str, release: str = "cohabit") -> str:
    """What `helm template` prints. Raises AssertionError with what it says instead."""
    sets = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    done = helm("template", release, str(CHART), "--namespace=house", *sets, *arguments)
    assert not done.returncode, done.stderr
    return done.stdout


def rendered(values: Values, *arguments: str, release: str = "cohabit") -> list[Object]:
    """The objects of the chart."""
    return objects_in(template(values, *arguments, release=release))


def objects_in(text: str) -> list[Object]:
    """Those of a stream of YAML documents."""
    return [each for each in yaml.safe_load_all(text) if each]


@functools.cache
def of_matrix(name: str) -> list[Object]:
    """The objects of one of the sets; not to be changed."""
    return rendered(MATRIX[name])


def kept(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of a kind and a name."""
    [found] = [e for e in objects if e["kind"] == kind and e["metadata"]["name"] == name]
    return found


def workloads(objects: list[Object]) -> Iterator[Object]:
    """Those that have pods."""
    kinds = {"Deployment", "StatefulSet", "Job"}
    return (each for each in objects if each["kind"] in kinds)


def by_component(objects: list[Object]) -> dict[str, Object]:
    """Workloads whose pods serve, by component."""
    serving = (each for each in workloads(objects) if each["kind"] != "Job")
    label = "app.kubernetes.io/component"
    return {each["spec"]["template"]["metadata"]["labels"][label]: each for each in serving}


def main_container(workload: Object) -> Object:
    """The first container of a workload's pods."""
    first: Object = workload["spec"]["template"]["spec"]["containers"][0]
    return first


def configuration(objects: list[Object]) -> dict[str, Any]:
    """The cohabit.yaml that the pods read."""
    [text] = [
        each["data"]["cohabit.yaml"]
        for each in objects
        if each["kind"] == "ConfigMap" and "cohabit.yaml" in each["data"]
    ]
    result: dict[str, Any] = yaml.safe_load(text)
    return result
