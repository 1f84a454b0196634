"""Envoy's configuration in the chart is that of deploy/envoy, at the addresses of the release."""

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.chart import CHART, ROOT, kept, of_matrix, rendered
from tests.kube.rules import pod_of
from tests.kube.schemas import Object

ENVOY = ROOT / "deploy" / "envoy"


def bootstrap(objects: list[Object]) -> dict[str, Any]:
    """What Envoy is started with."""
    text = kept(objects, "ConfigMap", "cohabit-envoy")["data"]["envoy.yaml"]
    result: dict[str, Any] = yaml.safe_load(text)
    return result


def placed(*, certificates: bool) -> dict[str, Any]:
    """What deploy/envoy/place.py makes of the same addresses."""
    spec = importlib.util.spec_from_file_location("place", ENVOY / "place.py")
    assert spec
    assert spec.loader
    place = importlib.util.module_from_spec(spec)
    sys.modules["place"] = place  # where dataclasses look for their module
    spec.loader.exec_module(place)
    files = [f"/etc/cohabit/tls/{name}" for name in ("ca.crt", "tls.crt", "tls.key")]
    places = place.Places(
        folder="/etc/envoy",
        certificates="/etc/envoy/tls",
        edges=("cohabit-edge-pods:8080",),
        services={
            "scheduler": "cohabit-scheduler:9102",
            "broker": "cohabit-broker:9101",
            "jobs": "cohabit-jobs:9106",
        },
        listeners={"insides": "127.0.0.1:8001"},
        tls=place.ClientTls(*files) if certificates else None,
    )
    result: dict[str, Any] = place.placed(
        yaml.safe_load((ENVOY / "envoy.yaml").read_text()), places
    )
    return result


def listeners(config: Mapping[str, Any]) -> list[str]:
    return [each["name"] for each in config["static_resources"]["listeners"]]


def test_with_a_certificate_it_is_what_a_workstation_has_at_other_addresses() -> None:
    assert bootstrap(of_matrix("fronted-with-certificates")) == placed(certificates=True)


def test_without_a_certificate_the_public_listener_alone_is_missing() -> None:
    ours, theirs = bootstrap(of_matrix("fronted")), placed(certificates=False)
    assert set(listeners(theirs)) - set(listeners(ours)) == {"public"}
    kept_listeners = [
        each for each in theirs["static_resources"]["listeners"] if each["name"] != "public"
    ]
    theirs["static_resources"]["listeners"] = kept_listeners
    assert ours == theirs


def test_the_insides_are_offered_to_who_forwards_a_port_alone() -> None:
    for name in ("fronted", "fronted-with-certificates"):
        for each in bootstrap(of_matrix(name))["static_resources"]["listeners"]:
            host = each["address"]["socket_address"]["address"]
            assert (host == "127.0.0.1") == (each["name"] == "insides"), each["name"]


def test_the_file_of_the_chart_is_the_one_of_envoy() -> None:
    assert (CHART / "files" / "envoy.yaml").read_bytes() == (ENVOY / "envoy.yaml").read_bytes()


@pytest.mark.parametrize("name", ["fronted", "fronted-with-certificates"])
def test_envoy_takes_it(name: str, tmp_path: Path) -> None:
    config = bootstrap(of_matrix(name))
    text = yaml.safe_dump(config).replace("/etc/envoy/", f"{ENVOY}/")
    script = ROOT / "scripts" / "certificates.sh"
    subprocess.run([str(script), str(tmp_path)], check=True, timeout=30, capture_output=True)
    for ours, theirs in (
        ("ca.crt", "ca.pem"),
        ("tls.crt", "service.pem"),
        ("tls.key", "service.key"),
    ):
        text = text.replace(f"/etc/cohabit/tls/{ours}", str(tmp_path / theirs))
    (tmp_path / "envoy.yaml").write_text(text)
    envoy = Path(sys.executable).with_name("envoy")
    done = subprocess.run(
        [str(envoy), "--mode", "validate", "--config-path", str(tmp_path / "envoy.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]


def test_a_change_of_addresses_rolls_envoy_and_a_model_does_not() -> None:
    def pod(config: Mapping[str, Any]) -> Object:
        values = {"envoy": {"enabled": True}, "config": config}
        return pod_of(kept(rendered(values), "Deployment", "cohabit-envoy"))

    first = pod({})
    assert pod({"llm": {"models": {"other": {"path": "o.gguf", "context_tokens": 512}}}}) == first
    longer = pod({"edge": {"drain_s": 120}})
    assert longer["spec"]["terminationGracePeriodSeconds"] > 120
    [container] = longer["spec"]["containers"]
    asleep_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert 120 < asleep_s < longer["spec"]["terminationGracePeriodSeconds"]
