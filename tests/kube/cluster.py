"""What an API server keeps and refuses, so far as Helm and the chart depend on it.

Objects are checked strictly against Kubernetes' schemas before they are kept, get what the server
adds, and change only where a real server lets them. Apply is known by its outcome where one applier
owns an object: what it had said before and says no more is gone.
"""

import copy
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kube.schemas import Object, complaint

Key = tuple[str, str, str, str]
"""Version of the API, resource, namespace, name."""

KINDS: Mapping[str, Mapping[str, str]] = {
    "v1": {
        "namespaces": "Namespace",
        "configmaps": "ConfigMap",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "secrets": "Secret",
        "serviceaccounts": "ServiceAccount",
        "services": "Service",
    },
    "apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "batch/v1": {"jobs": "Job"},
    "networking.k8s.io/v1": {"ingresses": "Ingress", "networkpolicies": "NetworkPolicy"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
}
"""By version of the API: its resources and their kinds."""
OF_THE_CLUSTER = frozenset({"namespaces"})
"""Resources that are in no namespace."""

_CHANGEABLE: Mapping[str, frozenset[str]] = {
    "StatefulSet": frozenset(
        {
            "minReadySeconds",
            "ordinals",
            "persistentVolumeClaimRetentionPolicy",
            "replicas",
            "revisionHistoryLimit",
            "template",
            "updateStrategy",
        }
    ),
    "PersistentVolumeClaim": frozenset({"resources"}),
    "Job": frozenset({"activeDeadlineSeconds", "backoffLimit", "parallelism", "suspend"}),
}
"""Of these kinds nothing else in `spec` may change."""
_FIXED: Mapping[str, frozenset[str]] = {
    "Deployment": frozenset({"selector"}),
    "Service": frozenset({"clusterIP"}),
}
"""Of these kinds this may not change."""


class ApiError(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


@dataclass(slots=True)
class Cluster:
    """The objects there are."""

    objects: dict[Key, Object] = field(default_factory=dict)
    applied: dict[Key, Object] = field(default_factory=dict)
    """What was applied last, of objects that are."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    version: int = 0

    def of_kind(self, kind: str) -> dict[str, Object]:
        """The objects of a kind, by name."""
        return {key[3]: each for key, each in self.objects.items() if each["kind"] == kind}

    def put(self, key: Key, wanted: Object) -> Object:
        """Keep an object as it is wanted. Raises ApiError."""
        wanted = copy.deepcopy(wanted) | {"apiVersion": key[0], "kind": KINDS[key[0]][key[1]]}
        if said := complaint(wanted):
            raise ApiError(422, "Invalid", said)
        former = self.objects.get(key)
        self.version += 1
        _fill_in(key, former, wanted, self.version)
        if former is not None:
            _refuse_immutable(former, wanted)
        self.objects[key] = wanted
        return wanted

    def apply(self, key: Key, applied: Object) -> Object:
        """Server-side apply of the one applier that there is. Raises ApiError."""
        former = self.objects.get(key, {})
        result = self.put(key, merged(former, applied, self.applied.get(key, {})))
        self.applied[key] = copy.deepcopy(applied)
        return result


def _fill_in(key: Key, former: Object | None, wanted: Object, version: int) -> None:
    """What the server knows better than those who ask."""
    meta = wanted.setdefault("metadata", {})
    meta.pop("managedFields", None)
    known: Object = former["metadata"] if former else {"uid": str(uuid.uuid4()), "generation": 0}
    changed = former is None or former.get("spec") != wanted.get("spec")
    if key[2]:
        meta["namespace"] = key[2]
    meta |= {
        "name": key[3],
        "resourceVersion": str(version),
        "uid": known["uid"],
        "generation": known["generation"] + changed,
    }
    if wanted["kind"] == "Service":
        address = former["spec"]["clusterIP"] if former else f"10.96.0.{version % 250 + 1}"
        wanted["spec"].setdefault("clusterIP", address)


def _refuse_immutable(former: Object, wanted: Object) -> None:
    kind, old, new = wanted["kind"], former.get("spec", {}), wanted.get("spec", {})
    fixed = _FIXED.get(kind, frozenset())
    if kind in _CHANGEABLE:
        fixed = frozenset((old.keys() | new.keys()) - _CHANGEABLE[kind])
    for name in sorted(fixed):
        if old.get(name) != new.get(name):
            said = f'{kind} "{wanted["metadata"]["name"]}": spec.{name}: field is immutable'
            raise ApiError(422, "Invalid", said)


def merged(former: Any, applied: Any, before: Any) -> Any:
    """What a value becomes: `applied` over `former`, less what only `before` had said."""
    if not isinstance(applied, dict) or not isinstance(former, dict):
        return copy.deepcopy(applied)
    before = before if isinstance(before, dict) else {}
    kept = {k: v for k, v in former.items() if k in applied or k not in before}
    for name, value in applied.items():
        kept[name] = merged(kept.get(name), value, before.get(name))
    return copy.deepcopy(kept)


def patched(former: Any, patch: Any) -> Any:
    """A merge patch (RFC 7386): null takes away."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(former) if isinstance(former, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value)
    return result
