"""Envoy's files for other addresses than those of Compose, in one folder.

`envoy.yaml` beside this file is where policy stands; here addresses and paths alone are put in
their places, by default those of a house that `cohabit up` runs on this machine.

    .venv/bin/python -P deploy/envoy/place.py --out .cohabit/envoy
    .venv/bin/envoy -c .cohabit/envoy/envoy.yaml
"""

import argparse
import copy
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
DESCRIPTORS = "cohabit.pb"
CERTIFICATE = "certificate.yaml"
SERVICES = ("scheduler", "broker", "jobs")
_UNIX = "unix:"
_NAME = "cohabit.internal"
"""Every certificate of a house is for this name, whatever the address."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What services that want to know their callers are shown, and what their own is checked by."""

    ca: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is: addresses as "host:port" or "unix:/path"."""

    folder: str
    """Where Envoy will find its files."""
    certificates: str
    """The folder of tls.crt and tls.key."""
    edges: tuple[str, ...]
    services: Mapping[str, str]
    listeners: Mapping[str, str] = field(default_factory=dict)
    """By name; those that are not named stay where they are."""
    admin: str = ""
    tls: ClientTls | None = None


def address(text: str) -> dict[str, Any]:
    """An address as Envoy writes it. Raises ValueError."""
    if text.startswith(_UNIX):
        return {"pipe": {"path": text.removeprefix(_UNIX)}}
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"expected host:port or unix:/path, not {text!r}")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


def placed(bootstrap: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """A bootstrap with these addresses and paths. Raises ValueError."""
    # Through copies: what YAML's aliases share would otherwise be changed in all places at once.
    result = copy.deepcopy(dict(bootstrap))
    if places.admin:
        result["admin"] = result["admin"] | {"address": address(places.admin)}
    resources = result["static_resources"]
    resources["listeners"] = [_listener(one, places) for one in resources["listeners"]]
    resources["clusters"] = [_cluster(one, places) for one in resources["clusters"]]
    return result


def certificate(secrets: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """The certificate's file with its folder. Nothing else in it is a path."""
    result = copy.deepcopy(dict(secrets))
    tls = result["resources"][0]["tls_certificate"]
    tls["certificate_chain"] = {"filename": f"{places.certificates}/tls.crt"}
    tls["private_key"] = {"filename": f"{places.certificates}/tls.key"}
    tls["watched_directory"] = {"path": places.certificates}
    return result


def _listener(listener: Mapping[str, Any], places: Places) -> dict[str, Any]:
    result = copy.deepcopy(dict(listener))
    if where := places.listeners.get(result["name"]):
        result["address"] = address(where)
    for chain in result["filter_chains"]:
        if "transport_socket" in chain:
            common = chain["transport_socket"]["typed_config"]["common_tls_context"]
            source = common["tls_certificate_sds_secret_configs"][0]["sds_config"]
            source["path_config_source"] = {"path": f"{places.folder}/{CERTIFICATE}"}
        for http_filter in chain["filters"][0]["typed_config"]["http_filters"]:
            if "proto_descriptor" in http_filter["typed_config"]:
                http_filter["typed_config"]["proto_descriptor"] = f"{places.folder}/{DESCRIPTORS}"
    return result


def _cluster(cluster: Mapping[str, Any], places: Places) -> dict[str, Any]:
    name = cluster["name"]
    given = places.edges if name == "edge" else (places.services[name],)
    endpoints = [{"endpoint": {"address": address(one)}} for one in given]
    result = {
        **copy.deepcopy(dict(cluster)),
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }
    sockets = [one.startswith(_UNIX) for one in given]
    if all(sockets):
        del result["cluster_type"]  # files have no names to resolve
        result["type"] = "STATIC"
    elif any(sockets):
        raise ValueError(f"{name}: addresses are all Unix sockets, or none of them is")
    elif places.tls is not None and name in SERVICES:
        result["transport_socket"] = _client(places.tls)
    return result


def _client(tls: ClientTls) -> dict[str, Any]:
    kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    own = {
        "certificate_chain": {"filename": tls.certificate},
        "private_key": {"filename": tls.key},
    }
    checked = {
        "trusted_ca": {"filename": tls.ca},
        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": _NAME}}],
    }
    common = {"alpn_protocols": ["h2"], "tls_certificates": [own], "validation_context": checked}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {"@type": kind, "sni": _NAME, "common_tls_context": common},
    }


def write(out: Path, places: Places) -> None:
    """All files, into `out`. Raises ValueError."""
    bootstrap = placed(_read("envoy.yaml"), places)
    secrets = certificate(_read(CERTIFICATE), places)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in (("envoy.yaml", bootstrap), (CERTIFICATE, secrets)):
        (out / name).write_text(yaml.dump(content, Dumper=_Plain, sort_keys=False))
    shutil.copyfile(HERE / DESCRIPTORS, out / DESCRIPTORS)


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((HERE / name).read_text())
    return content


class _Plain(yaml.SafeDumper):
    """Without aliases, which say less than what they stand for."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and write the files."""
    parser = _parser()
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    run = given.run_dir.resolve()
    tls = (given.ca, given.client_certificate, given.client_key)
    if any(tls) and not all(tls):
        parser.error("--ca, --client-certificate and --client-key come together")
    places = Places(
        folder=given.seen_at or str(out),
        certificates=given.certificates or f"{given.seen_at or out}/tls",
        edges=tuple(given.edge or ["127.0.0.1:8080"]),
        services={name: getattr(given, name) or f"unix:{run}/{name}.sock" for name in SERVICES},
        listeners={"public": given.public, "plain": given.plain, "insides": given.insides},
        admin=given.admin,
        tls=ClientTls(*tls) if all(tls) else None,
    )
    try:
        write(out, places)
    except ValueError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder to write to")
    add("--seen-at", default="", help="where Envoy will find that folder, if somewhere else")
    add("--certificates", default="", help="folder of tls.crt and tls.key; default: OUT/tls")
    add("--edge", action="append", help="an edge, host:port; may be given several times")
    add("--run-dir", type=Path, default=Path(".cohabit/run"), help="where the house's sockets are")
    for name in SERVICES:
        add(f"--{name}", default="", help="host:port or unix:/path; default: in the run folder")
    add("--public", default="127.0.0.1:8443", help="where to listen with TLS")
    add("--plain", default="127.0.0.1:8000", help="where to listen without")
    add("--insides", default="127.0.0.1:8001", help="where REST and grpc-web are offered")
    add("--admin", default="127.0.0.1:9901", help="Envoy's own interface")
    add("--ca", default="", help="what the services' certificates are checked by")
    add("--client-certificate", default="", help="what is shown to them")
    add("--client-key", default="", help="its key")
    return parser


if __name__ == "__main__":
    main()
