"""How pods come, go and find each other: one of each at most, but for the edge."""

import pytest

from tests.kube.chart import configuration, kept, of_matrix, workloads
from tests.kube.rules import pod_of
from tests.kube.schemas import Object
from tests.kube.traffic import labels_of, may_dial

MODEL_SERVICES = ("llm", "diffusion", "matte")
KEEPERS = ("broker", "scheduler", "jobs")
"""Services with something on a disk of which there may be one user."""


def workload(objects: list[Object], service: str) -> Object:
    [found] = [
        each
        for each in workloads(objects)
        if labels_of(each)["app.kubernetes.io/component"] == service
    ]
    return found


def test_two_pods_never_hold_the_card_or_a_journal() -> None:
    objects = of_matrix("whole")
    for service in MODEL_SERVICES:
        assert workload(objects, service)["spec"]["strategy"] == {"type": "Recreate"}
    for service in KEEPERS:
        keeper = workload(objects, service)
        # It starts no second pod of a name while the first may still run; a Deployment does.
        assert keeper["kind"] == "StatefulSet"
        # A revision whose pod never gets ready can be rolled back.
        assert keeper["spec"]["podManagementPolicy"] == "Parallel"
        claims = [v for v in pod_of(keeper)["spec"]["volumes"] if "persistentVolumeClaim" in v]
        assert f"cohabit-{service}" in {
            each["persistentVolumeClaim"]["claimName"] for each in claims if each["name"] == "state"
        }
    for service in (*MODEL_SERVICES, *KEEPERS):
        assert workload(objects, service)["spec"]["replicas"] == 1


def test_an_edge_leaves_only_when_the_next_is_ready() -> None:
    spec = workload(of_matrix("fronted"), "edge")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_models_are_where_the_memory_is_that_the_broker_lends() -> None:
    objects = of_matrix("whole")
    broker = labels_of(workload(objects, "broker"))
    for service in MODEL_SERVICES:
        affinity = pod_of(workload(objects, service))["spec"]["affinity"]["podAffinity"]
        [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"]["matchLabels"] == broker


def test_a_service_is_reached_before_it_is_ready_and_the_edge_is_not() -> None:
    # Calls that wait for a restarted scheduler have ten seconds; a probe is up to five late.
    for each in of_matrix("default"):
        if each["kind"] == "Service":
            inside = each["metadata"]["name"] != "cohabit-edge"
            assert each["spec"].get("publishNotReadyAddresses", False) == inside


def test_engines_say_where_their_pod_is_and_listen_where_it_is_open() -> None:
    objects = of_matrix("whole")
    scheduler = workload(objects, "scheduler")
    for service in MODEL_SERVICES:
        section = configuration(objects)[service]
        assert section["engine_host"] == "auto"
        first, last = section["engine_ports"]
        target = workload(objects, service)
        assert may_dial(objects, scheduler, target, first)
        assert may_dial(objects, scheduler, target, last)
        assert not may_dial(objects, scheduler, target, last + 1)


def test_a_node_can_be_drained_unless_somebody_forbade_it() -> None:
    def budgets(name: str) -> dict[str, Object]:
        return {
            each["metadata"]["name"]: {k: v for k, v in each["spec"].items() if k != "selector"}
            for each in of_matrix(name)
            if each["kind"] == "PodDisruptionBudget"
        }

    assert budgets("default") == {"cohabit-edge": {"maxUnavailable": 1}}
    guarded = budgets("trusting-nobody")
    assert guarded.pop("cohabit-edge") == {"maxUnavailable": 1}
    assert guarded == {
        f"cohabit-{service}": {"minAvailable": 1}
        for service in ("broker", "scheduler", "jobs", "llm", "matte")
    }


@pytest.mark.parametrize("service", [*MODEL_SERVICES, "broker"])
def test_weights_are_read_and_never_written(service: str) -> None:
    [container] = pod_of(workload(of_matrix("whole"), service))["spec"]["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["models"]["readOnly"]
    assert mounts["models"]["mountPath"] == configuration(of_matrix("whole"))["models_dir"]


def test_the_solver_is_taken_from_the_image_to_where_it_can_be_written() -> None:
    pod = pod_of(workload(of_matrix("default"), "matte"))["spec"]
    [copying], [serving] = pod["initContainers"], pod["containers"]
    [solver] = [m["mountPath"] for m in serving["volumeMounts"] if m["name"] == "solver"]
    [target] = [m["mountPath"] for m in copying["volumeMounts"]]
    assert copying["command"] == ["cp", "-R", f"{solver}/.", target]
    assert copying["image"] == serving["image"]


def test_what_is_kept_on_a_disk_survives_an_uninstall() -> None:
    claims = [e for e in of_matrix("whole") if e["kind"] == "PersistentVolumeClaim"]
    assert len(claims) == 4
    for each in claims:
        assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert kept(of_matrix("whole"), "PersistentVolumeClaim", "cohabit-models")
