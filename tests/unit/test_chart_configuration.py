"""The cohabit.yaml of the chart and its values: what they hold and refuse, and who reads them."""

import importlib.util
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

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
    RUNTIME,
    Values,
    by_component,
    configuration,
    helm,
    kept,
    main_container,
    of_matrix,
    rendered,
    workloads,
)
from tests.kube.rules import containers, pod_of

CHARTS_OWN = {"run_dir", "state_dir", "models_dir", "listen", "addresses", "metrics", "tls"}
"""Shared keys that the chart sets itself or, `metrics`, that a cluster has no use for."""


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


@pytest.mark.parametrize("told", [{}, {"drain_s": 600}, {"drain_s": 0.5}, {"drain_s": 0}])
def test_a_pod_is_killed_only_after_its_engines_have_drained(told: Mapping[str, float]) -> None:
    objects = rendered({"config": {"llm": told}})
    drain_s = configuration(objects)["llm"]["drain_s"]
    assert drain_s == told.get("drain_s", 55)  # or an upgrade would end what runs
    grace = pod_of(by_component(objects)["llm"])["spec"]["terminationGracePeriodSeconds"]
    assert drain_s + 20 <= grace <= drain_s + 21


def test_models_that_pretend_drain_in_the_pod_of_the_broker() -> None:
    objects = rendered(MATRIX["simulated"])
    drain_s = configuration(objects)["simulated"]["drain_s"]
    broker = pod_of(by_component(objects)["broker"])["spec"]
    assert {each["name"] for each in broker["containers"]} == {"broker", "simulated"}
    assert broker["terminationGracePeriodSeconds"] >= drain_s + 20


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
