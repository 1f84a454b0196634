"""NetworkPolicies let through what the services dial, and nothing else."""

from collections.abc import Mapping

import pytest

from chassis.config import SECTIONS
from tests.kube.chart import configuration, of_matrix, workloads
from tests.kube.schemas import Object
from tests.kube.traffic import labels_of, may_dial, stranger_may_dial

PORTS: Mapping[str, int] = {
    "broker": 9101,
    "scheduler": 9102,
    "llm": 9103,
    "diffusion": 9104,
    "matte": 9105,
    "jobs": 9106,
    "simulated": 9107,
    "edge": 8080,
    "envoy": 8000,
}
ENGINES = (9200, 9263)
"""The first and the last port of engines."""

DIALS: Mapping[str, tuple[str, ...]] = {
    "edge": ("broker", "scheduler", "llm", "diffusion", "matte", "simulated", "jobs"),
    "scheduler": ("broker", "llm", "diffusion", "matte", "simulated"),
    "llm": ("broker", "scheduler"),
    "diffusion": ("broker", "scheduler"),
    "matte": ("broker", "scheduler"),
    "simulated": ("broker", "scheduler"),
    "jobs": ("scheduler", "diffusion", "matte"),
    "broker": (),
    "envoy": ("edge", "scheduler", "broker", "jobs"),
}
"""Whom a service calls, by what its code opens channels to: `edge/app.py`, `services/*/clients.py`,
`hosting/{leases,house_device}.py`."""

RUNS_ON: Mapping[str, tuple[str, ...]] = {
    "edge": ("llm", "diffusion", "matte", "simulated"),
    "scheduler": ("llm", "diffusion", "matte", "simulated"),  # asks about permits
    "jobs": ("diffusion", "matte"),
}
"""Whose engines a service calls."""


WAYS_IN: Mapping[str, set[tuple[str, int]]] = {
    "default": {("edge", 8080)},
    "whole": {("edge", 8080)},
    "simulated": {("edge", 8080)},
    "trusting-nobody": set(),  # its edge answers to one namespace
    "fronted": {("envoy", 8000), ("envoy", 8443)},
    "fronted-with-certificates": {("envoy", 8000), ("envoy", 8443)},
}
"""What a pod that is none of the house reaches: component and port."""


def pods(objects: list[Object]) -> dict[str, Object]:
    """Workloads by component."""
    return {labels_of(w)["app.kubernetes.io/component"]: w for w in workloads(objects)}


def housed(component: str, present: set[str]) -> set[str]:
    """The services in the pods of a component."""
    return ({component} | ({"simulated"} if component == "broker" else set())) & present


def needed(caller: str, called: str, present: set[str]) -> set[int]:
    """The ports of a component that another has to reach."""
    inside = housed(called, present)
    callers = housed(caller, present)
    dialled = {PORTS[s] for c in callers for s in DIALS.get(c, ()) if s in inside}
    engines = {p for c in callers for s in RUNS_ON.get(c, ()) if s in inside for p in ENGINES}
    return dialled | engines


@pytest.mark.parametrize("house", WAYS_IN)
def test_each_pod_reaches_whom_it_calls_and_nobody_else(house: str) -> None:
    objects = of_matrix(house)
    there = pods(objects)
    present = {"envoy", *(configuration(objects).keys() & set(SECTIONS))}
    asked = {*PORTS.values(), *ENGINES, ENGINES[0] - 1, ENGINES[1] + 1, 22}
    for caller, source in there.items():
        for called, target in there.items():
            if caller == called:
                continue  # a pod always reaches itself
            open_ports = {p for p in asked if may_dial(objects, source, target, p)}
            assert open_ports == needed(caller, called, present), (caller, called)


@pytest.mark.parametrize("house", WAYS_IN)
def test_strangers_reach_what_is_in_front_and_nothing_else(house: str) -> None:
    objects = of_matrix(house)
    asked = {*PORTS.values(), *ENGINES, 8001, 8443, 9901}
    assert WAYS_IN[house] == {
        (component, port)
        for component, workload in pods(objects).items()
        for port in asked
        if stranger_may_dial(objects, workload, port)
    }


def test_with_envoy_in_front_metrics_are_scraped_by_who_may_reach_the_edge() -> None:
    objects = of_matrix("fronted-with-certificates")
    edge = pods(objects)["edge"]
    assert stranger_may_dial(objects, edge, 8080, {"app": "prometheus"})
    assert not stranger_may_dial(objects, edge, 8080, {"app": "other"})


def test_public_addresses_are_the_edges_and_the_fetchers() -> None:
    def reach_out(objects: list[Object]) -> set[str]:
        return {
            each["metadata"]["name"]
            for each in objects
            if each["kind"] == "NetworkPolicy"
            for rule in each["spec"].get("egress", ())
            for peer in rule.get("to", ())
            if "ipBlock" in peer
        }

    assert reach_out(of_matrix("default")) == {"cohabit-edge", "cohabit-fetch"}
    assert reach_out(of_matrix("trusting-nobody")) == set()


def test_a_collector_of_traces_is_reached_at_its_port() -> None:
    def opened(house: str) -> set[int]:
        return {
            port["port"]
            for each in of_matrix(house)
            if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "cohabit-llm"
            for rule in each["spec"]["egress"]
            if "to" not in rule
            for port in rule["ports"]
        }

    assert opened("default") == {53}
    assert opened("trusting-nobody") == {53, 4317}
