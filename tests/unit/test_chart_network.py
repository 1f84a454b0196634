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
}
"""Whom a service calls, by what its code opens channels to: `edge/app.py`, `services/*/clients.py`,
`hosting/{leases,house_device}.py`."""

RUNS_ON: Mapping[str, tuple[str, ...]] = {
    "edge": ("llm", "diffusion", "matte", "simulated"),
    "scheduler": ("llm", "diffusion", "matte", "simulated"),  # asks about permits
    "jobs": ("diffusion", "matte"),
}
"""Whose engines a service calls."""

HOUSES = ("default", "whole", "simulated", "trusting-nobody")


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


@pytest.mark.parametrize("house", HOUSES)
def test_each_pod_reaches_whom_it_calls_and_nobody_else(house: str) -> None:
    objects = of_matrix(house)
    there = pods(objects)
    present = {"edge", "broker", "scheduler", *(configuration(objects).keys() & set(SECTIONS))}
    asked = {*PORTS.values(), *ENGINES, ENGINES[0] - 1, ENGINES[1] + 1, 22}
    for caller, source in there.items():
        for called, target in there.items():
            if caller == called:
                continue  # a pod always reaches itself
            open_ports = {p for p in asked if may_dial(objects, source, target, p)}
            wanted = needed(caller, called, present)
            if called == "edge":  # open to everybody, but nobody inside calls it
                wanted = set()
            assert open_ports == wanted, (caller, called)


@pytest.mark.parametrize("house", HOUSES)
def test_strangers_reach_the_edge_alone(house: str) -> None:
    objects = of_matrix(house)
    fenced = house == "trusting-nobody"  # its edge answers to one namespace
    for component, workload in pods(objects).items():
        reached = {
            p for p in (*PORTS.values(), *ENGINES) if stranger_may_dial(objects, workload, p)
        }
        assert reached == ({8080} if component == "edge" and not fenced else set()), component


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
