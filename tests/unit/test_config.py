"""The configuration blames the right line of the right file, and says what it expected."""

import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import Field

from chassis import tracing
from chassis.config import CONFIG_ENV, ConfigError, Document, House, Section, load


class Inner(Section):
    size: int = 1
    names: tuple[str, ...] = Field(default=(), strict=False)


class Toy(Section):
    count: int
    inner: Inner = Inner()
    models: Mapping[str, Inner] = {}


GOOD = """\
run_dir: r
edge:
  count: 1
  inner: {size: 2}
  models:
    a:
      size: 3
    b: {names: [x, y]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    return tmp_path


def read(folder: Path, text: str, overlay: str | None = None) -> Document:
    path = folder / "cohabit.yaml"
    path.write_text(text)
    if overlay is not None:
        (folder / "cohabit.local.yaml").write_text(overlay)
    return load(path)


def complaint(folder: Path, text: str, overlay: str | None = None) -> str:
    """What is said of the file, its folder taken away."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text, overlay).section("edge", Toy)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_good_file(folder: Path) -> None:
    document = read(folder, GOOD)
    toy = document.section("edge", Toy)
    assert (toy.count, toy.inner.size, toy.models["a"].size) == (1, 2, 3)
    assert toy.models["b"].names == ("x", "y")
    house = document.house()
    assert house.run_dir == folder / "r"
    assert house.state_dir == folder / ".cohabit/state"
    assert house.listen_of("llm") == house.address_of("llm") == f"unix:{folder}/r/llm.sock"


@pytest.mark.parametrize("text", ["", "edge:\n", "# nothing\n"])
def test_an_empty_file_is_all_defaults(folder: Path, text: str) -> None:
    document = read(folder, text)
    assert document.section("edge", Inner) == Inner()
    assert document.house().log_level == "info"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("edge:\n  count: 1\n  cuont: 2\n", "cohabit.yaml:3: edge.cuont: unknown key; known"),
        ("log_levle: info\n", "cohabit.yaml:1: log_levle: unknown key; known here: "),
        ("edge:\n  count: 1\n  models:\n    a: {sise: 1}\n",
         "cohabit.yaml:4: edge.models.a.sise: unknown key"),
        ("edge:\n  count: many\n",
         "cohabit.yaml:2: edge.count: expected a valid integer, got 'many'"),
        ("edge:\n  count: '1'\n", "cohabit.yaml:2: edge.count: expected a valid integer, got '1'"),
        ("edge:\n  count: 1\n  inner:\n    names:\n      - x\n      - 5\n",
         "cohabit.yaml:6: edge.inner.names.1: expected a valid string, got 5"),
        ("\nedge:\n  inner: {}\n", "cohabit.yaml:2: edge.count: missing; expected a value"),
        ("edge: 7\n", "cohabit.yaml:1: edge: expected a valid dictionary or instance of"),
        ("edge: []\n", "cohabit.yaml:1: edge: expected a valid dictionary or instance of"),
        ("log_level: loud\n",
         "cohabit.yaml:1: log_level: expected 'debug', 'info', 'warning' or 'error', got 'loud'"),
        ("listen:\n  llm: unix:/run/l.sock\n  lmm: unix:/run/l.sock\n",
         ("cohabit.yaml:3: listen.lmm: expected a service: broker, scheduler, llm, diffusion, "
          "matte, simulated, jobs, got 'lmm'")),
        ("addresses: {edge: 'h:1'}\n", "cohabit.yaml:1: addresses.edge: expected a service"),
        ("metrics: {edge: '127.0.0.1:1'}\n", "cohabit.yaml:1: metrics.edge: expected a service"),
        ("metrics:\n  llm: foo\n",
         "cohabit.yaml:2: metrics.llm: expected host:port with a port from 1 to 65535"),
        ("metrics: {llm: 'unix:/run/m.sock'}\n", "cohabit.yaml:1: metrics.llm: expected host:port"),
        ("metrics: {llm: 'host:0'}\n", "cohabit.yaml:1: metrics.llm: expected host:port"),
        ("metrics: {llm: 'host:65536'}\n", "cohabit.yaml:1: metrics.llm: expected host:port"),
        ("metrics: {llm: '::1:9100'}\n", "cohabit.yaml:1: metrics.llm: expected host:port"),
        ("metrics: {llm: ':9100'}\n", "cohabit.yaml:1: metrics.llm: expected host:port"),
        ("metrics: {llm: 9100}\n",
         "cohabit.yaml:1: metrics.llm: expected a valid string, got 9100"),
        ("listen: {llm: here}\n", "cohabit.yaml:1: listen.llm: expected unix:/path or host:port"),
        ("listen: {llm: 'unix:l.sock'}\n",
         "cohabit.yaml:1: listen.llm: expected unix: with an absolute path of at most 107 bytes"),
        (f"addresses: {{llm: 'unix:/{'x' * 120}'}}\n",
         "cohabit.yaml:1: addresses.llm: expected unix: with an absolute path of at most 107"),
        ("edge:\n  count: 1\n  inner: {size: 1}\n  count: 2\n",
         "cohabit.yaml:4: count: written twice"),
        ("edge:\n  count: [1\n", "cohabit.yaml:3: expected YAML, "),
        ("edge:\n\tcount: 1\n", "cohabit.yaml:2: expected YAML, "),
        ("a: 1\n---\nb: 1\n", "cohabit.yaml:2: expected YAML, "),
        ("edge:\n  count: !!python/name:os.system 1\n", "cohabit.yaml:2: expected YAML, "),
        ("edge:\n  count: 2026-13-45\n", "cohabit.yaml:2: month must be in 1..12"),
        ("edge: &e\n  inner: *e\n", "cohabit.yaml:1: expected at most 16 levels of keys"),
        ("- a\n", "cohabit.yaml:1: expected keys with values at the top level"),
        ("just words\n", "cohabit.yaml:1: expected keys with values at the top level"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(folder: Path, text: str, said: str) -> None:
    assert complaint(folder, text).startswith(said)


def test_every_error_has_a_line_of_its_own(folder: Path) -> None:
    said = complaint(folder, "edge:\n  count: x\n  inner: {size: y}\n  more: 1\n")
    assert [line.split(": ")[:2] for line in said.splitlines()] == [
        ["cohabit.yaml:2", "edge.count"],
        ["cohabit.yaml:3", "edge.inner.size"],
        ["cohabit.yaml:4", "edge.more"],
    ]


def test_a_typo_is_told_what_it_may_have_meant(folder: Path) -> None:
    said = complaint(folder, "edge:\n  cuont: 2\n  count: 1\n")
    assert said.endswith("known here: count, inner, models")
    assert "broker, diffusion, edge, jobs" in complaint(folder, "broken: {}\n")


def test_the_overlay_is_merged_key_by_key(folder: Path) -> None:
    overlay = "edge:\n  inner: {names: [z]}\n  models:\n    c: {}\n"
    toy = read(folder, GOOD, overlay).section("edge", Toy)
    assert toy.inner == Inner(size=2, names=("z",))
    assert set(toy.models) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        ("\nedge:\n  count: x\n", "cohabit.local.yaml:3: edge.count: "),
        ("edge:\n  models:\n    a: {size: x}\n", "cohabit.local.yaml:3: edge.models.a.size: "),
        ("edge:\n  models:\n    a: {}\n    a: {}\n", "cohabit.local.yaml:4: a: written twice"),
        ("edge: {\n", "cohabit.local.yaml:2: expected YAML, "),
        ("typo: 1\n", "cohabit.local.yaml:1: typo: unknown key"),
    ],
)
def test_an_error_of_the_overlay_is_blamed_on_it(folder: Path, overlay: str, said: str) -> None:
    assert complaint(folder, GOOD, overlay).startswith(said)


def test_an_error_below_the_overlay_is_blamed_on_the_base(folder: Path) -> None:
    text = GOOD.replace("size: 3", "size: three")
    overlay = "edge:\n  inner: {size: 5}\n"
    assert complaint(folder, text, overlay).startswith("cohabit.yaml:7: edge.models.a.size: ")


def test_a_run_dir_whose_sockets_would_not_fit(folder: Path) -> None:
    said = complaint(folder, "state_dir: s\nrun_dir: " + "x" * 100 + "\n")
    assert said.startswith("cohabit.yaml:2: run_dir: expected a folder whose sockets have paths")
    assert "at most 107 bytes" in said


def test_files_that_cannot_be_read(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file; name one with --config"):
        load(folder / "none.yaml")
    (folder / "cohabit.yaml").write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(ConfigError, match="expected UTF-8 text"):
        load(folder / "cohabit.yaml")


def test_the_file_is_found_by_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine.yaml").write_text("log_level: error\n")
    monkeypatch.setenv(CONFIG_ENV, str(folder / "mine.yaml"))
    assert load().house().log_level == "error"


def test_addresses_may_differ_from_what_is_bound() -> None:
    house = House(listen={"llm": "0.0.0.0:7000"}, addresses={"llm": "llm:7000"})
    assert house.listen_of("llm") == "0.0.0.0:7000"
    assert house.address_of("llm") == "llm:7000"
    assert house.address_of("broker") == house.listen_of("broker")


@pytest.mark.parametrize(
    "value", ["127.0.0.1:9100", "[::1]:9100", "metrics.example:1", "0.0.0.0:65535"]
)
def test_hosts_and_ports(folder: Path, value: str) -> None:
    house = read(folder, f"metrics: {{llm: '{value}'}}\nlisten: {{llm: '{value}'}}\n").house()
    assert house.metrics["llm"] == house.listen["llm"] == value


def test_a_metrics_port_in_use_is_one_sentence(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        path = folder / "taken.yaml"
        path.write_text(
            "broker: {device: simulated, capacity_mib: 100}\n"
            f"run_dir: {folder}\nmetrics: {{broker: '{listen}'}}\n"
        )
        run = subprocess.run(
            [sys.executable, "-P", "-m", "services.broker", "--config", str(path)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert run.returncode == 1
    assert run.stderr == (f"broker: metrics cannot be served on {listen}: Address already in use\n")


def test_a_process_exits_with_2_and_that_line(folder: Path) -> None:
    path = folder / "bad.yaml"
    path.write_text("broker:\n  device: simulated\n  capacity_mib: lots\n")
    run = subprocess.run(
        [sys.executable, "-P", "-m", "services.broker", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 2
    assert run.stdout == ""
    expected = f"{path}:3: broker.capacity_mib: expected a valid integer, got 'lots'\n"
    assert re.sub(r"\x1b\[\d*m", "", run.stderr) == expected


@pytest.mark.parametrize("endpoint", ["collector:4317", "ftp://c:1", "http://c", "http://c:0"])
def test_a_collector_is_named_by_url_and_port(folder: Path, endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r":2: traces\.endpoint: expected"):
        read(folder, f"traces:\n  endpoint: {endpoint}\n")


def test_a_collector_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert tracing.endpoint_of("") == ""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://env:4317")
    assert tracing.endpoint_of("") == "http://env:4317"
    assert tracing.endpoint_of("http://file:4317") == "http://file:4317"
