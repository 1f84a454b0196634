"""What of the configuration a service reads once, at its start, and what it follows. Pure.

Followed are the lists of models, and the scheduler's rules about them. All else takes effect when
the service starts anew: a deployment that restarts a service when its `fingerprint` is another does
so exactly when it has to.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from chassis.config import SECTIONS, Document

FOLLOWED: Mapping[str, tuple[str, ...]] = {
    "llm": ("models",),
    "diffusion": ("models",),
    "matte": ("models", "default_model"),
    "simulated": ("models",),
    "scheduler": ("residency",),
}
"""By section: the keys that are read again while its service runs."""

_DIAL_ALL = ("scheduler", "edge")
"""Services that dial every other: a section that comes or goes is news to them."""


def read_at_start(document: Document, service: str) -> dict[str, Any]:
    """What `service` reads at its start alone, by dotted key: shared keys, and its own section."""
    shared = {key: value for key, value in document.data.items() if key not in SECTIONS}
    metrics = shared.pop("metrics", None)
    if isinstance(metrics, Mapping) and service in metrics:
        shared[f"metrics.{service}"] = metrics[service]
    section = document.data.get(service)
    own = section if isinstance(section, Mapping) else {}
    followed = FOLLOWED.get(service, ())
    read = shared | {f"{service}.{k}": value for k, value in own.items() if k not in followed}
    if service in _DIAL_ALL:
        read |= dict.fromkeys(document.grpc_services(), "there")
    return read


def waits_for_restart(started: Document, now: Document, service: str) -> tuple[str, ...]:
    """The keys whose values in `now` take effect when `service`, which read `started`, restarts."""
    before, after = read_at_start(started, service), read_at_start(now, service)
    absent = object()
    keys = sorted(before.keys() | after.keys())
    return tuple(key for key in keys if before.get(key, absent) != after.get(key, absent))


def fingerprint(document: Document, service: str) -> str:
    """Another text whenever `service` has to restart for the configuration to take effect."""
    read = json.dumps(read_at_start(document, service), sort_keys=True, default=str)
    return hashlib.sha256(read.encode()).hexdigest()[:16]
