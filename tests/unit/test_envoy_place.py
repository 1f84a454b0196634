"""Addresses are put in their places, and nothing else of the bootstrap changes."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from chassis.errors import Fault, Reason
from deploy.envoy.place import ClientTls, Places, address, certificate, main, placed
from edge.anthropic.words import ANTHROPIC
from edge.config import EdgeConfig
from edge.speech import OPENAI

FOLDER = Path(__file__).parents[2] / "deploy" / "envoy"
BOOTSTRAP: dict[str, Any] = yaml.safe_load((FOLDER / "envoy.yaml").read_text())
SERVICES = {"scheduler": "unix:/run/s.sock", "broker": "b:9101", "jobs": "j:9106"}
PLACES = Places("/etc/envoy", "/etc/envoy/tls", ("edge:8080",), SERVICES)


def clusters(bootstrap: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in bootstrap["static_resources"]["clusters"]}


def listeners(bootstrap: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in bootstrap["static_resources"]["listeners"]}


def connection(listener: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return config


def addresses(cluster: dict[str, Any]) -> list[Any]:
    (group,) = cluster["load_assignment"]["endpoints"]
    return [one["endpoint"]["address"] for one in group["lb_endpoints"]]


def test_the_plain_file_is_what_compose_needs() -> None:
    named = Places(
        "/etc/envoy",
        "/etc/envoy/tls",
        ("edge:8080",),
        {"scheduler": "scheduler:9102", "broker": "broker:9101", "jobs": "jobs:9106"},
    )
    assert placed(BOOTSTRAP, named) == BOOTSTRAP


def test_every_edge_is_a_host() -> None:
    result = placed(BOOTSTRAP, Places("/e", "/e/tls", ("10.0.0.1:1", "[fd00::2]:2"), SERVICES))
    assert addresses(clusters(result)["edge"]) == [address("10.0.0.1:1"), address("[fd00::2]:2")]
    assert address("[fd00::2]:2")["socket_address"]["address"] == "fd00::2"


def test_a_socket_has_no_name_to_resolve() -> None:
    result = clusters(placed(BOOTSTRAP, PLACES))
    assert addresses(result["scheduler"]) == [{"pipe": {"path": "/run/s.sock"}}]
    assert result["scheduler"]["type"] == "STATIC"
    assert "cluster_type" not in result["scheduler"]
    assert "cluster_type" in result["broker"]


def test_certificates_are_shown_over_tcp_to_services_alone() -> None:
    tls = ClientTls("/c/ca.pem", "/c/own.pem", "/c/own.key")
    places = Places("/e", "/e/tls", ("edge:8080",), SERVICES, tls=tls)
    result = clusters(placed(BOOTSTRAP, places))
    told = result["broker"]["transport_socket"]["typed_config"]
    assert told["sni"] == "cohabit.internal"
    assert told["common_tls_context"]["validation_context"]["trusted_ca"]["filename"] == tls.ca
    assert "transport_socket" not in result["edge"]
    assert "transport_socket" not in result["scheduler"], "a Unix socket knows its callers"


def test_nothing_that_was_read_is_changed() -> None:
    before = copy.deepcopy(BOOTSTRAP)
    placed(BOOTSTRAP, Places("/e", "/e/tls", ("a:1",), SERVICES, {"public": "b:2"}, "c:3"))
    assert before == BOOTSTRAP


@pytest.mark.parametrize("wrong", ["edge", "edge:", ":8080", "edge:http", "edge:70000"])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        address(wrong)


def test_sockets_and_hosts_do_not_mix() -> None:
    with pytest.raises(ValueError, match="edge"):
        placed(BOOTSTRAP, Places("/e", "/e/tls", ("a:1", "unix:/b"), SERVICES))


def test_the_command_writes_a_folder(tmp_path: Path) -> None:
    main(["--out", str(tmp_path), "--seen-at", "/somewhere", "--edge", "a:1", "--edge", "b:2"])
    written = yaml.safe_load((tmp_path / "envoy.yaml").read_text())
    assert len(addresses(clusters(written)["edge"])) == 2
    where = {name: one["address"]["socket_address"] for name, one in listeners(written).items()}
    assert {one["address"] for one in where.values()} == {"127.0.0.1"}, "loopback unless told"
    assert "/somewhere/certificate.yaml" in (tmp_path / "envoy.yaml").read_text()
    secret = yaml.safe_load((tmp_path / "certificate.yaml").read_text())["resources"][0]
    assert secret["tls_certificate"]["watched_directory"] == {"path": "/somewhere/tls"}
    assert (tmp_path / "cohabit.pb").read_bytes() == (FOLDER / "cohabit.pb").read_bytes()


def test_the_command_refuses_half_a_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "--ca", "ca.pem"])
    assert "come together" in capsys.readouterr().err


def test_the_certificate_is_where_it_is_watched() -> None:
    plain = yaml.safe_load((FOLDER / "certificate.yaml").read_text())
    assert certificate(plain, PLACES) == plain


# What the plain file must keep true, whatever else is changed in it.


def test_every_listener_takes_away_what_clients_claim() -> None:
    for listener in listeners(BOOTSTRAP).values():
        config = connection(listener)
        assert config["use_remote_address"] is True
        assert config["path_with_escaped_slashes_action"] == "REJECT_REQUEST"
        (mutation,) = config["early_header_mutation_extensions"]
        removed = {one["remove"] for one in mutation["typed_config"]["mutations"]}
        assert {"forwarded", "x-forwarded-for", "x-real-ip", "x-envoy-internal"} <= removed


def test_nothing_that_clients_reach_leads_inside() -> None:
    for name in ("public", "plain"):
        (host,) = connection(listeners(BOOTSTRAP)[name])["route_config"]["virtual_hosts"]
        assert host["routes"][0]["name"] == "closed", "it is looked at first"
        reached = {one["route"]["cluster"] for one in host["routes"] if "route" in one}
        assert reached == {"edge"}


def test_streams_are_given_the_time_that_the_edge_gives_them() -> None:
    config = EdgeConfig(listen="127.0.0.1:0")
    (host,) = connection(listeners(BOOTSTRAP)["public"])["route_config"]["virtual_hosts"]
    (house,) = (one["route"] for one in host["routes"] if one["name"] == "house")
    assert house["timeout"] == "0s"
    assert float(house["idle_timeout"].rstrip("s")) > config.max_request_s


def test_what_envoy_says_itself_is_in_the_words_of_the_house() -> None:
    mappers = connection(listeners(BOOTSTRAP)["public"])["local_reply_config"]["mappers"]
    bodies = [one["body_format_override"].get("json_format") for one in mappers]
    faults = {
        429: Fault(Reason.RATE_LIMIT_EXCEEDED, "m"),
        503: Fault(Reason.SERVICE_UNAVAILABLE, "m"),
        504: Fault(Reason.DEADLINE_EXCEEDED, "m"),
        403: Fault(Reason.LOCAL_ONLY, "m"),
    }
    for fault in faults.values():
        said = json.loads(OPENAI.envelope(fault, ""))
        assert said in [_with_message(one, "m") for one in bodies if one]
    for status in (429, 503):
        said = json.loads(ANTHROPIC.envelope(faults[status], "%REQ(X-REQUEST-ID)%"))
        assert said in [_with_message(one, "m") for one in bodies if one]


def _with_message(body: dict[str, Any], message: str) -> dict[str, Any]:
    return body | {"error": body["error"] | {"message": message}}
