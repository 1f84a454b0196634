"""The cohabit.yaml of the chart: what it holds, who reads it, and who restarts when it changes."""

import importlib.util
import json
import shlex
import subprocess
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

import chassis.config
from chassis.config import CONFIG_ENV, SECTIONS, House
from cli.house import load
from cli.pull import TOKEN_ENV
from edge.config import EdgeConfig
from tests.kube.chart import (
    CHART,
    MATRIX,
    ROOT,
    Values,
    configuration,
    helm,
    kept,
    of_matrix,
    rendered,
    workloads,
)
from tests.kube.rules import containers, pod_of
from tests.kube.schemas import Object
from tests.kube.traffic import labels_of

RUNTIME = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
"""Read by NVIDIA's container runtime, which makes the container."""
CHARTS_OWN = {"run_dir", "state_dir", "models_dir", "listen", "addresses", "metrics", "tls"}
"""Shared keys that the chart sets itself or, `metrics`, that a cluster has no use for."""
EVERYBODY = {"broker", "scheduler", "llm", "matte", "jobs", "edge"}
"""The services of the default values."""


def by_component(objects: list[Object]) -> dict[str, Object]:
    """Workloads with services, by component."""
    made = (each for each in workloads(objects) if each["kind"] != "Job")
    return {labels_of(each)["app.kubernetes.io/component"]: each for each in made}


def main_container(workload: Object) -> Object:
    first: Object = pod_of(workload)["spec"]["containers"][0]
    return first


@pytest.mark.parametrize("name", MATRIX)
def test_the_configuration_is_one_that_the_services_take(name: str, tmp_path: Path) -> None:
    config = configuration(of_matrix(name))
    for path in ("run_dir", "state_dir", "models_dir"):
        assert Path(config[path]).is_absolute()
    file = tmp_path / "cohabit.yaml"
    file.write_text(yaml.safe_dump(config))
    assert (chassis.config.load(file).house().tls is not None) == ("tls" in config)
    config.pop("tls", None)  # whose files are in the pods
    file.write_text(yaml.safe_dump(config))
    assert set(load(file).services) == set(config["addresses"])


@pytest.mark.parametrize("name", MATRIX)
def test_every_address_is_a_service_that_leads_to_who_listens(name: str) -> None:
    objects = of_matrix(name)
    config = configuration(objects)
    for service, address in config["addresses"].items():
        host, _, port = address.rpartition(":")
        spec = kept(objects, "Service", host)["spec"]
        assert [each["port"] for each in spec["ports"]] == [int(port)]
        assert config["listen"][service].rpartition(":")[2] == port
        component = spec["selector"]["app.kubernetes.io/component"]
        [runs] = [c for c in containers(by_component(objects)[component]) if c["name"] == service]
        assert runs["args"] == [f"services.{service}"]


@pytest.mark.parametrize("name", MATRIX)
def test_commands_and_variables_are_known_to_the_code(name: str) -> None:
    for workload in workloads(of_matrix(name)):
        for container in containers(workload):
            known = {CONFIG_ENV, *RUNTIME} | ({TOKEN_ENV} if workload["kind"] == "Job" else set())
            assert {variable["name"] for variable in container.get("env", ())} <= known
            for module in container.get("args", ()):  # of the images' `python3 -P -m`
                assert importlib.util.find_spec(f"{module}.__main__")
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if command := container.get(probe, {}).get("exec", {}).get("command"):
                    assert command[:3] == ["python3", "-P", "-m"]
                    assert importlib.util.find_spec(command[3])


def test_the_values_take_every_section_and_every_shared_key_but_the_charts_own() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    taken = set(schema["properties"]["config"]["properties"])
    assert taken == set(SECTIONS) | (House.model_fields.keys() - CHARTS_OWN)


def test_the_default_house_is_the_one_of_the_repository() -> None:
    here = yaml.safe_load((CHART / "values.yaml").read_text())["config"]
    there = yaml.safe_load((ROOT / "cohabit.yaml").read_text())
    for section in ("scheduler", "llm", "matte"):
        assert here[section] == there[section]
    assert here.keys() - {"log_level"} == there.keys() - {"models_dir"}


def test_a_whole_cohabit_yaml_takes_the_place_of_the_values(tmp_path: Path) -> None:
    file = tmp_path / "cohabit.yaml"
    file.write_text("scheduler: {permits: 9}\nllm: {models: {}}\nedge: {keepalive_s: 3}\n")
    config = configuration(rendered({}, f"--set-file=configFile={file}"))
    assert config["scheduler"] == {"permits": 9}
    assert config["edge"]["keepalive_s"] == 3
    assert config["llm"]["models"] == {}
    assert "matte" not in config


def test_text_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    done = helm("template", "cohabit", str(CHART), "--set=configFile=]")
    assert done.returncode
    assert "expected the text of a cohabit.yaml" in done.stderr


REFUSED: Mapping[str, Values] = {
    "an unknown value": {"gpuSharing": "whole"},
    "an unknown value within": {"gpu": {"share": "whole"}},
    "an unknown section": {"config": {"brokers": {}}},
    "what the chart sets itself": {"config": {"run_dir": "/tmp"}},
    "a way of sharing that is none": {"gpu": {"sharing": "some"}},
    "a quantity that is none": {"llm": {"resources": {"limits": {"memory": "6GB"}}}},
    "a port beyond the last": {"edge": {"service": {"port": 70_000}}},
    "a name that no object can have": {"keys": {"existingSecret": "My_Keys"}},
    "a long name": {"fullnameOverride": "a" * 41},
    "two places for keys": {"keys": {"existingSecret": "keys", "content": "x"}},
    "an issuer without a name": {"tls": {"enabled": True, "certManager": {"enabled": True}}},
    "a route without a gateway": {"gateway": {"enabled": True}},
}


@pytest.mark.parametrize("what", REFUSED)
def test_values_are_refused(what: str) -> None:
    sets = [f"--set-json={name}={json.dumps(value)}" for name, value in REFUSED[what].items()]
    done = helm("template", "cohabit", str(CHART), *sets)
    assert done.returncode
    assert "cohabit" in done.stderr


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


def test_certificates_are_where_the_configuration_says_and_probes_do_not_need_them() -> None:
    objects = of_matrix("trusting-nobody")
    named = configuration(objects)["tls"]
    assert {Path(path).name for path in named.values()} == {"ca.crt", "tls.crt", "tls.key"}
    for component, workload in by_component(objects).items():
        container = main_container(workload)
        paths = {m["mountPath"] for m in container["volumeMounts"]}
        assert {str(Path(path).parent) for path in named.values()} <= paths
        probe = container["livenessProbe"]
        # The kubelet has no certificate, so its own gRPC would be turned away.
        assert ("httpGet" if component == "edge" else "exec") in probe
        if component != "edge":
            assert probe["exec"]["command"][3] == "chassis.probe"


def test_keys_are_where_the_edge_looks_for_them() -> None:
    objects = of_matrix("trusting-nobody")
    container = main_container(by_component(objects)["edge"])
    paths = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    [name] = kept(objects, "Secret", "cohabit-keys")["data"]
    assert configuration(objects)["edge"]["keys_file"] == f"{paths['keys']}/{name}"


@pytest.mark.parametrize(
    "edge", [{}, {"drain_s": 600}, {"linger_s": 0.5, "drain_s": 1.2}, {"linger_s": 30}]
)
def test_a_pod_is_killed_only_after_the_edge_has_drained(edge: Mapping[str, float]) -> None:
    objects = rendered({"config": {"edge": edge}})
    told = configuration(objects)["edge"]
    grace = pod_of(by_component(objects)["edge"])["spec"]["terminationGracePeriodSeconds"]
    assert grace >= Decimal(str(told["linger_s"])) + Decimal(str(told["drain_s"])) + 5
    # A balancer learns of it by a probe that has failed twice.
    if "linger_s" not in edge:
        assert told["linger_s"] >= 5
    assert EdgeConfig.model_fields.keys() >= told.keys()


def _checksums(objects: list[Object]) -> dict[str, str]:
    return {
        component: json.dumps(pod_of(workload), sort_keys=True)
        for component, workload in by_component(objects).items()
    }


def rolled(values: Values) -> set[str]:
    """Whose pods are others than with the default values."""
    before, after = _checksums(of_matrix("default")), _checksums(rendered(values))
    return {name for name in before.keys() & after.keys() if before[name] != after[name]}


MODEL = {"path": "other.gguf", "context_tokens": 512}

ROLLS: Mapping[str, tuple[Values, set[str]]] = {
    "a model more": ({"config": {"llm": {"models": {"other": MODEL}}}}, set()),
    "a model less": ({"config": {"llm": {"models": {"smollm2": None}}}}, set()),
    "a model that changes": ({"config": {"llm": {"models": {"smollm2": {"places": 8}}}}}, set()),
    "a network less": ({"config": {"matte": {"models": {"u2netp": None}}}}, set()),
    "what lives together": (
        {"config": {"scheduler": {"residency": {"models": {"smollm2": {"pinned": True}}}}}},
        set(),
    ),
    "a default matting network": ({"config": {"matte": {"default_model": "u2netp"}}}, set()),
    "the edge's comments": ({"config": {"edge": {"keepalive_s": 5}}}, {"edge"}),
    "permits": ({"config": {"scheduler": {"permits": 8}}}, {"scheduler"}),
    "swaps": ({"config": {"llm": {"swap_dir": "swaps"}}}, {"llm"}),
    "what the broker keeps back": ({"config": {"broker": {"reserve_mib": 100}}}, {"broker"}),
    "the job service": ({"config": {"jobs": {"running": 1}}}, {"jobs"}),
    "how much is logged": ({"config": {"log_level": "debug"}}, EVERYBODY),
    "a section more": (
        {"config": {"diffusion": {"models": {}}}},
        {"edge", "scheduler", "jobs"},  # who dials it
    ),
    "a section less": ({"config": {"jobs": None}}, {"edge"}),
    "certificates": ({"tls": {"enabled": True, "existingSecret": "x"}}, EVERYBODY),
    "an image": ({"images": {"llm": "other/llm"}}, {"llm"}),
}


@pytest.mark.parametrize("what", ROLLS)
def test_a_change_rolls_whom_it_concerns(what: str) -> None:
    values, concerned = ROLLS[what]
    assert rolled(values) == concerned


def test_a_change_that_rolls_nobody_is_in_the_file_that_pods_read() -> None:
    values, _ = ROLLS["a model more"]
    assert configuration(rendered(values))["llm"]["models"].keys() == {"smollm2", "other"}
    assert configuration(of_matrix("default"))["llm"]["models"].keys() == {"smollm2"}


def _fetch(values: Values) -> tuple[str, list[str]]:
    [job] = [each for each in rendered(values) if each["kind"] == "Job"]
    command = main_container(job)["command"]
    return job["metadata"]["name"], command[command.index("fetch") + 1 :]


def test_what_names_a_source_is_fetched_and_another_list_by_another_job() -> None:
    sourced = {"path": "b.gguf", "source": "hf:some/one/b.gguf", "context_tokens": 512}
    first, names = _fetch({})
    assert names == ["smollm2", "u2netp"]
    second, names = _fetch({"config": {"llm": {"models": {"b": sourced, "by-hand": MODEL}}}})
    assert names == ["b", "smollm2", "u2netp"]
    third, _ = _fetch({"images": {"tag": "0.2.0"}})
    assert len({first, second, third}) == 3
    assert _fetch({"config": {"edge": {"keepalive_s": 5}}})[0] == first


def test_one_model_that_cannot_be_had_keeps_no_other_away(tmp_path: Path) -> None:
    [job] = [each for each in of_matrix("default") if each["kind"] == "Job"]
    shell, flag, script, *arguments = main_container(job)["command"]
    (tmp_path / "cohabit").write_text(
        f'#!/bin/sh\necho "$2" >>{shlex.quote(str(tmp_path))}/asked\n[ "$2" != smollm2 ]\n'
    )
    (tmp_path / "cohabit").chmod(0o755)
    done = subprocess.run(
        [shell, flag, script, *arguments],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        timeout=10,
        check=False,
    )
    assert done.returncode == 1
    assert (tmp_path / "asked").read_text().split() == ["smollm2", "u2netp"]


def test_prometheus_asks_the_edge_with_a_key_and_takes_labels_as_they_are() -> None:
    objects = of_matrix("other-peoples-kinds")
    monitor = kept(objects, "ServiceMonitor", "cohabit-edge")
    [endpoint] = monitor["spec"]["endpoints"]
    labels = kept(objects, "Service", "cohabit-edge")["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["spec"]["jobLabel"]] == "cohabit"
    assert endpoint["honorLabels"]
    assert endpoint["authorization"]["credentials"] == {"name": "prometheus-key", "key": "key"}
    port_names = [p["name"] for p in kept(objects, "Service", "cohabit-edge")["spec"]["ports"]]
    assert endpoint["port"] in port_names
    [group] = kept(objects, "PrometheusRule", "cohabit")["spec"]["groups"]
    assert group["rules"] == [{"alert": "Down", "expr": "up == 0"}]


def test_the_alerts_of_the_house_are_taken_as_they_are() -> None:
    file = ROOT / "deploy" / "prometheus" / "alerts.yaml"
    objects = rendered({}, f"--set-file=monitoring.rules={file}")
    spec = kept(objects, "PrometheusRule", "cohabit")["spec"]
    assert spec == yaml.safe_load(file.read_text())
