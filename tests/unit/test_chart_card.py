"""Each way of sharing a card: who sees it, what a cluster is asked for, what the broker is told."""

from typing import Any

import pytest

from tests.kube.chart import (
    RUNTIME,
    by_component,
    configuration,
    main_container,
    of_matrix,
    rendered,
)
from tests.kube.rules import pod_of
from tests.kube.schemas import Object


def test_without_a_card_the_broker_lends_what_the_values_say() -> None:
    objects = of_matrix("default")
    assert configuration(objects)["broker"] == {"device": "cpu", "capacity_mib": 4096}
    # It would take the limit of its own pod for the memory that there is.
    assert "limits" not in main_container(by_component(objects)["broker"])["resources"]
    said = rendered({"config": {"broker": {"capacity_mib": 1000}}})
    assert configuration(said)["broker"]["capacity_mib"] == 1000


def test_a_pod_of_models_may_hold_all_that_is_lent_to_it() -> None:
    objects = rendered({"config": {"diffusion": {"models": {}}}})
    lent_mib = configuration(objects)["broker"]["capacity_mib"]
    for service in ("llm", "diffusion", "matte"):
        limit = main_container(by_component(objects)[service])["resources"]["limits"]["memory"]
        assert int(limit.removesuffix("Gi")) * 1024 >= lent_mib + 1024, service


@pytest.mark.parametrize("name", ["whole", "default-runtime", "slices", "mps"])
def test_a_card_that_is_asked_for_is_never_quietly_the_cpu(name: str) -> None:
    assert configuration(of_matrix(name))["broker"] == {"device": "nvml"}


def _card_of(objects: list[Object]) -> dict[str, tuple[Any, dict[str, str], Any, str]]:
    """By component: runtime class, variables, devices taken, tag of the image."""
    found = {}
    for component, workload in by_component(objects).items():
        container = main_container(workload)
        variables = {v["name"]: v["value"] for v in container["env"] if v["name"] in RUNTIME}
        limits = container["resources"].get("limits", {})
        devices = {name: amount for name, amount in limits.items() if "/" in name}
        runtime = pod_of(workload)["spec"].get("runtimeClassName")
        found[component] = (runtime, variables, devices, container["image"].rpartition(":")[2])
    return found


def test_a_whole_card_is_seen_by_who_computes_on_it_and_by_the_broker() -> None:
    card = _card_of(of_matrix("whole"))
    computes = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    reads = {**computes, "NVIDIA_DRIVER_CAPABILITIES": "utility"}
    for model_service in ("llm", "diffusion", "matte"):
        assert card[model_service] == ("nvidia", computes, {}, "0.1.0-cuda")
    assert card["broker"] == ("nvidia", reads, {}, "0.1.0")
    for other in ("scheduler", "jobs", "edge"):
        assert card[other] == (None, {}, {}, "0.1.0")


@pytest.mark.parametrize(
    ("name", "runtime", "resource"),
    [("slices", None, "nvidia.com/gpu"), ("mps", "nvidia", "nvidia.com/gpu.shared")],
)
def test_of_a_card_in_replicas_each_takes_one(name: str, runtime: str, resource: str) -> None:
    card = _card_of(of_matrix(name))
    for component in ("broker", "llm", "matte"):
        assert card[component][0] == runtime
        assert card[component][2] == {resource: 1}
        # Which card it is, the device plugin says.
        assert "NVIDIA_VISIBLE_DEVICES" not in card[component][1]
    assert card["edge"][2] == {}


def test_without_a_card_nothing_asks_for_one() -> None:
    for component, taken in _card_of(of_matrix("default")).items():
        assert taken == (None, {}, {}, "0.1.0"), component


def test_a_simulated_card_is_shared_by_processes_of_one_pod() -> None:
    pod = pod_of(by_component(of_matrix("simulated"))["broker"])["spec"]
    assert pod["shareProcessNamespace"] is True
    runs = [
        {m["name"]: m["mountPath"] for m in container["volumeMounts"]}["run"]
        for container in pod["containers"]
    ]
    assert [container["name"] for container in pod["containers"]] == ["broker", "simulated"]
    assert set(runs) == {configuration(of_matrix("simulated"))["run_dir"]}
