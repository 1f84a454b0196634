"""What deploy/compose and deploy/docker say agrees with the code, the configuration and Envoy's."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from chassis import config
from cli import house as houses
from edge.config import EdgeConfig
from services.llm.config import LlmConfig
from services.matte.config import MatteConfig

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose"
DOCKER = ROOT / "deploy" / "docker"
ENVOY = ROOT / "deploy" / "envoy"
CONFIG = COMPOSE / "house" / "cohabit.yaml"
SERVICES: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
OVER: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.gpu.yaml").read_text())["services"]
DOCKERFILES = (*sorted(DOCKER.glob("*.Dockerfile")), ENVOY / "Dockerfile")
CODE = "\n".join(
    path.read_text()
    for folder in ("chassis", "hosting", "services", "edge", "cli", "deploy/envoy")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".sh"}
)
FOREIGN = {
    "NUMBA_CACHE_DIR": "numba's own",
    "GRPC_VERBOSITY": "gRPC's own",
    "NVIDIA_DRIVER_CAPABILITIES": "of NVIDIA's runtime",
}
"""Variables that others than our code read."""


def seconds(written: str) -> float:
    found = re.fullmatch(r"(\d+)s", written)
    assert found is not None, written
    return float(found[1])


def default(written: str) -> str:
    """What `${NAME:-value}` comes to where nobody sets it."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", written)


@pytest.fixture(scope="module")
def document() -> config.Document:
    return config.load(CONFIG)


def test_the_configuration_is_one_that_the_house_takes() -> None:
    whole = houses.load(CONFIG)
    assert whole.services == ("broker", "scheduler", "llm", "matte", "jobs")
    assert all(file.source for file in whole.files), "a model that nobody can fetch"


def test_services_are_dialled_where_they_listen(document: config.Document) -> None:
    house = document.house()
    assert set(house.listen) == set(house.addresses) >= set(document.grpc_services())
    for name in house.listen:
        host, _, port = house.address_of(name).rpartition(":")
        assert host in SERVICES, f"{name} is dialled by a name that Compose does not give"
        assert house.listen_of(name) == f"0.0.0.0:{port}"


def test_ports_are_those_of_envoy(document: config.Document) -> None:
    told = (ENVOY / "envoy.yaml").read_text()
    pattern = r"address: ([a-z][\w-]*), port_value: (\d+)"
    dialled = {(name, int(port)) for name, port in re.findall(pattern, told)}
    edge = document.section("edge", EdgeConfig)
    here = {("edge", edge.address[1])}
    for name in ("broker", "scheduler", "jobs"):
        here.add((name, int(document.house().address_of(name).rpartition(":")[2])))
    assert dialled == here
    assert SERVICES["edge-1"]["networks"]["inside"]["aliases"] == ["edge"]
    published = [default(port).rsplit(":", 1) for port in SERVICES["envoy"]["ports"]]
    listened = {int(port) for port in re.findall(r"address: 0\.0\.0\.0, port_value: (\d+)", told)}
    assert {int(port) for _, port in published} < listened
    assert all(outside.startswith("127.0.0.1:") for outside, _ in published)


@pytest.mark.parametrize("name", SERVICES)
def test_commands_and_health_checks_are_there(name: str, document: config.Document) -> None:
    service = SERVICES[name]
    for module in service.get("command") or ():
        if "entrypoint" not in service:
            assert importlib.util.find_spec(module) is not None, module
    probed = service.get("environment", {}).get("COHABIT_PROBE")
    if probed is None:
        off = service.get("healthcheck", {}).get("disable", False)
        assert off or name == "envoy", "nobody would know whether it can do its work"
    elif probed.startswith("http://"):
        port = document.section("edge", EdgeConfig).address[1]
        assert probed == f"http://127.0.0.1:{port}/readyz"
    else:
        assert probed == name
        assert name in document.house().listen


def test_variables_are_read_by_somebody() -> None:
    for name, service in [*SERVICES.items(), *OVER.items()]:
        for variable in service.get("environment", {}):
            read = f'"{variable}"' in CODE or f"${{{variable}" in CODE or variable in FOREIGN
            assert read or f"$${variable}" in str(service["command"]), f"{name}: {variable}"
    for path in DOCKERFILES:
        final = path.read_text().rpartition("\nFROM ")[2]
        for block in re.findall(r"^ENV ((?:.*\\\n)*.*)$", final, flags=re.MULTILINE):
            for variable in re.findall(r"(\w+)=", block):
                ours = variable.startswith(("COHABIT_", "ENVOY_"))
                assert not ours or f'"{variable}"' in CODE, f"{path.name}: {variable}"


@pytest.mark.parametrize("name", SERVICES)
def test_containers_may_do_no_more_than_they_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert bool(service.get("ports")) == (name == "envoy")
    assert ("front" in service["networks"]) == (name == "envoy")
    assert default(service["pull_policy"]) == "never"
    for mounted in service.get("volumes", ()):
        source, target, *mode = mounted.split(":")
        if target in {"/etc/cohabit", "/etc/cohabit/keys", "/var/lib/cohabit/models"}:
            writes = (name, source) in {
                ("models", "models"),
                ("cohabit", "models"),
                ("cohabit", "keys"),
            }
            assert (mode != ["ro"]) == writes, mounted


def test_nobody_is_killed_while_he_drains(document: config.Document) -> None:
    edge = document.section("edge", EdgeConfig)
    for name in ("edge-1", "edge-2"):
        grace_s = seconds(SERVICES[name]["stop_grace_period"])
        assert grace_s > edge.linger_s + edge.drain_s + 2
    for name, kind in (("llm", LlmConfig), ("matte", MatteConfig)):
        drain_s = document.section(name, kind).drain_s
        assert seconds(SERVICES[name]["stop_grace_period"]) > drain_s + 6
    assert SERVICES["diffusion"]["stop_grace_period"] == SERVICES["llm"]["stop_grace_period"]


def test_images_have_a_dockerfile() -> None:
    built = {path.stem for path in DOCKER.glob("*.Dockerfile")} | {"envoy"}
    wanted = {default(one["image"]).split("/")[1].split(":")[0] for one in SERVICES.values()}
    assert wanted == built
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert {default(one["image"]).rpartition(":")[2] for one in SERVICES.values()} == {version[1]}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_images_are_small_and_nobodys(path: Path) -> None:
    text = path.read_text()
    base = re.findall(r"^ARG BASE=(.*)$", text, flags=re.MULTILINE)
    assert base == ["debian:bookworm-20250520-slim"], "one base, pinned by its date"
    final = text.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.*)$", final, flags=re.MULTILINE)[-1] == "10001:10001"
    assert not re.search(r"g\+\+|gcc|build-essential|cmake", final), "no compiler in the result"
    assert "HEALTHCHECK" in text or "FROM ${SERVICE}\n" in text
    assert not re.search(r"https?://", text), "hosts come from outside"


def test_engines_of_the_card_stand_on_its_libraries() -> None:
    for name in ("broker", "llm", "matte", "diffusion"):
        (device,) = OVER[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia"
        assert "gpu" in device["capabilities"]
        if name != "broker":
            assert default(OVER[name]["image"]).endswith("-cuda")


def test_compose_takes_its_files() -> None:
    plugin = Path(sys.executable).parent / "docker-compose"
    if not plugin.exists():
        pytest.skip("Compose is in the extra `deploy`, which is not installed")
    for files in (["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]):
        named = [word for file in files for word in ("-f", str(COMPOSE / file))]
        asked = [str(plugin), *named, "--profile", "*", "config", "--quiet"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
