"""Prometheus metrics of services with engines: of models, and of what their engines count.

Engines come and go, and what only they knew would go with them: their service stays, and adds up
what they tell (`EngineFigures`). What an engine has counted in its last tenth of a second is lost
when it is killed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol

from prometheus_client import Counter, Gauge, Histogram

from chassis.metrics import MIB, on_scrape
from cohabit.models.v1 import models_pb2 as pb
from hosting.core import State

STATE = Gauge("cohabit_model_state", "1 for the state a model is in.", ["model", "state"])
INSTANCES = Gauge("cohabit_model_instances", "Engine processes of a model.", ["model"])
RUNNING = Gauge("cohabit_model_running_requests", "Requests that run on a model.", ["model"])
MEMORY = Gauge(
    "cohabit_model_memory_bytes",
    "Memory in use by the engines of a model.",
    ["model"],
)
DEGRADED = Gauge(
    "cohabit_model_degraded", "Engines of a model that compute where they were not meant to.",
    ["model"],
)  # fmt: skip
REQUESTS = Counter(
    "cohabit_model_requests_total", "Requests that a model's engines have taken in.", ["model"]
)
LOADS = Counter(
    "cohabit_model_loads_total",
    "Loads that have ended: ready, failed or given_up.",
    ["model", "outcome"],
)
LOAD_SECONDS = Histogram(
    "cohabit_model_load_seconds",
    "Time from the start of an engine until it serves.",
    ["model"],
    buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 600),
)
UNLOADS = Counter(
    "cohabit_model_unloads_total",
    "Engines that served and serve no more: asked, or the reason of their failure.",
    ["model", "reason"],
)
RENEWALS = Counter(
    "cohabit_model_renewals_total",
    "Engines that ended themselves to be rid of work that could not be cancelled.",
    ["model"],
)
DRAFTED = Counter(
    "cohabit_speculation_drafted_tokens_total", "Tokens that engines guessed ahead.", ["model"]
)
ACCEPTED = Counter(
    "cohabit_speculation_accepted_tokens_total", "Guesses that the model made, too.", ["model"]
)
SAVED = Counter(
    "cohabit_speculation_saved_calls_total", "Decode steps that guessing has saved.", ["model"]
)


def _counter(name: str, says: str) -> Counter:
    return Counter(f"cohabit_{name}_total", says, ["model"])


def _gauge(name: str, says: str) -> Gauge:
    return Gauge(f"cohabit_{name}", says, ["model"])


COUNTED: Mapping[str, Counter] = {
    "prompt_tokens": _counter("prompt_tokens", "Tokens of prompts, cached ones included."),
    "cached_prompt_tokens": _counter(
        "cached_prompt_tokens", "Tokens of prompts that were in the KV cache already."
    ),
    "completion_tokens": _counter("completion_tokens", "Tokens that models have written."),
    "prefix_hits": _counter(
        "prefix_cache_hits", "Prompts whose beginning was in the KV cache already."
    ),
    "pictures": _counter("pictures", "Pictures finished, those of the result cache included."),
    "result_cache_hits": _counter("result_cache_hits", "Pictures that were there already."),
    "denoise_steps": _counter("denoise_steps", "Denoise steps of finished pictures."),
    "mattes": _counter("mattes", "Alpha mattes made."),
    "foregrounds": _counter("foregrounds", "Foregrounds solved for mattes that came with them."),
}
"""By the name that engines count it under (`EngineProcess.count`)."""

HELD: Mapping[str, Gauge] = {
    "kv_cells": _gauge("kv_cache_cells", "Cells of the KV caches."),
    "kv_cells_used": _gauge("kv_cache_used_cells", "Cells in use, idle prefixes included."),
    "kv_cells_idle": _gauge("kv_cache_idle_cells", "Cells that idle prefixes keep."),
    "parked_sequences": _gauge("kv_cache_parked_sequences", "Prefixes kept in host memory."),
    "parked_bytes": _gauge("kv_cache_parked_bytes", "Host memory of what is parked."),
}
"""By the name that engines report it under (`EngineProcess.held`)."""

_OF_MODELS = (STATE, INSTANCES, RUNNING, MEMORY, DEGRADED, *HELD.values())
_KEPT = (
    *(REQUESTS, LOADS, LOAD_SECONDS, UNLOADS, RENEWALS, DRAFTED, ACCEPTED, SAVED),
    *COUNTED.values(),
)
"""What stays when a model is only unloaded."""


class Models(Protocol):
    """Whoever hosts some."""

    def messages(self) -> Collection[pb.Model]:
        """Every model as it stands."""

    def figures(self) -> Iterable[tuple[str, pb.EngineFigures]]:
        """What each engine last told, by its model."""


def follow(models: Models) -> Callable[[], None]:
    """Show models whenever somebody looks; call what comes back to end it."""
    return on_scrape(partial(_publish, models))


async def _publish(models: Models) -> None:
    for gauge in _OF_MODELS:
        gauge.clear()  # a model that is gone is shown no more
    for model in models.messages():
        _show(model)
    for key, figures in models.figures():
        for name in HELD.keys() & figures.held.keys():
            HELD[name].labels(key).inc(figures.held[name])


def _show(model: pb.Model) -> None:
    for outcome in ("ready", "failed", "given_up"):
        LOADS.labels(model.key, outcome)  # from 0 on, so that the first one is seen as such
    for state in State:
        STATE.labels(model.key, state.name.lower()).set(state.value == model.state)
    INSTANCES.labels(model.key).set(len(model.instances))
    RUNNING.labels(model.key).set(sum(len(one.running_permit_ids) for one in model.instances))
    MEMORY.labels(model.key).set(MIB * sum(one.materialised_mib for one in model.instances))
    DEGRADED.labels(model.key).set(sum(one.placement.degraded for one in model.instances))


def forget(model: str) -> None:
    """It is configured no more: else there were series for every name that has ever been."""
    for metric in _KEPT:
        metric.remove_by_labels({"model": model})


def count_figures(model: str, before: pb.EngineFigures, now: pb.EngineFigures) -> bool:
    """Add what has come to one engine's figures since it told `before`; False: they are older."""
    more = {name: now.counted[name] - before.counted.get(name, 0) for name in now.counted}
    if any(count < 0 for count in more.values()):
        return False
    for name in COUNTED.keys() & more.keys():
        COUNTED[name].labels(model).inc(more[name])
    return True


def count_load(model: str, load_ms: int, *, renewed: bool) -> None:
    """An engine serves."""
    LOAD_SECONDS.labels(model).observe(load_ms / 1000)
    if renewed:
        RENEWALS.labels(model).inc()
    else:
        LOADS.labels(model, "ready").inc()


def count_end(model: str, reason: str, *, served: bool) -> None:
    """An engine is gone; `reason`: of its failure, empty if it was asked to go."""
    if served:
        UNLOADS.labels(model, reason or "asked").inc()
    else:
        LOADS.labels(model, "failed" if reason else "given_up").inc()


def count_speculation(model: str, before: pb.Speculation | None, now: pb.Speculation) -> None:
    """Add what has come to one engine's figures since it told `before`."""
    before = before or pb.Speculation()
    DRAFTED.labels(model).inc(max(0, now.drafted_tokens - before.drafted_tokens))
    ACCEPTED.labels(model).inc(max(0, now.accepted_tokens - before.accepted_tokens))
    SAVED.labels(model).inc(max(0, now.saved_calls - before.saved_calls))
