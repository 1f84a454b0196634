"""What of the configuration a service reads once, at its start, and what it follows. Pure.

Followed are the lists of models, and the scheduler's rules about them. All else takes effect when
the service starts anew: a deployment that restarts a service when its `fingerprint` is another does
so exactly when it has to.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from chassis.config import MODEL_SERVICES, SECTIONS, Document

FOLLOWED: Mapping[str, tuple[str, ...]] = {
    "llm": ("models",),
    "diffusion": ("models",),
    "matte": ("models", "default_model"),
    "simulated": ("models",),
    "scheduler": ("residency",),
}
"""By section: the keys that are read again while its service runs."""

DIALS: Mapping[str, tuple[str, ...]] = {
    "edge": ("broker", "scheduler", *MODEL_SERVICES, "jobs"),
    "scheduler": ("broker", *MODEL_SERVICES),
    **dict.fromkeys(MODEL_SERVICES, ("broker", "scheduler")),
    "jobs": ("scheduler", "diffusion", "matte"),
}
"""By service: those that it dials, if they are there. One that comes or goes is news to it."""


def read_at_start(document: Document, service: str) -> dict[str, Any]:
    """What `service` reads at its start alone, by dotted key: shared keys, and its own section."""
    shared = {key: value for key, value in document.data.items() if key not in SECTIONS}
    listen, addresses, metrics = (
        _by_service(shared.pop(key, None)) for key in ("listen", "addresses", "metrics")
    )
    read = shared | _named("listen", listen, service) | _named("metrics", metrics, service)
    there = document.grpc_services()
    for name in DIALS.get(service, ()):
        if name in there:
            read |= {name: "there"} | _named("addresses", {**listen, **addresses}, name)
    followed = FOLLOWED.get(service, ())
    own = _by_service(document.data.get(service))
    return read | {f"{service}.{k}": value for k, value in own.items() if k not in followed}


def _by_service(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _named(key: str, by_service: Mapping[str, Any], service: str) -> dict[str, Any]:
    return {f"{key}.{service}": by_service[service]} if service in by_service else {}


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
