"""`cohabit simulate` and `cohabit trace synth` as a person calls them."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from cli.console import Refused
from cli.main import app

CONFIG = """
broker:
  device: simulated
  capacity_mib: 1000
  floor_mib: {paid: 0, sub: 0, free: 0, background: 0}
  foreign: [{name: game, mib: 300, at_s: 60, for_s: 60}]
simulated:
  models:
    a: {kind: language, lane: chat, resident_mib: 600, context_tokens: 2048, load_s: 1}
    b: {kind: diffusion, lane: image, resident_mib: 500, peak_mib: 100, load_s: 2, work_s: 3}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cohabit.yaml"
    path.write_text(CONFIG)
    return path


def cohabit(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def synthesised(config: Path, kind: str = "steady", *options: object) -> Path:
    path = config.with_name(f"{kind}.jsonl")
    wish = ("--requests", 50, "--hours", 1, "-o", path, *options)
    result = cohabit("trace", "synth", kind, "--config", config, *wish)
    assert result.exit_code == 0, result.output
    return path


def test_a_synthetic_trace_is_replayed_beside_fifo_with_a_picture(config: Path) -> None:
    trace, picture = synthesised(config), config.with_name("day.svg")
    wish = ("--compare", "fifo", "--picture", picture)
    result = cohabit("simulate", config, trace, *wish)

    assert result.exit_code == 0, result.output
    head = result.stdout.splitlines()[1].split()
    assert head == ["cohabit", "fifo"]
    assert "out of memory" in result.stdout
    assert "\x1b[" not in result.stdout
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_json_has_every_figure(config: Path) -> None:
    result = cohabit("simulate", config, synthesised(config, "bursty"), "--json")
    (replay,) = json.loads(result.stdout)
    assert replay["requests"] == 50
    assert replay["out_of_memory"] == 0
    assert sum(replay["ends"].values()) == 50
    assert {"p50_s", "p99_s", "worst_s"} <= replay["tiers"][0].keys()


def test_without_a_file_the_trace_goes_to_standard_output(config: Path) -> None:
    wish = ("--config", config, "--requests", 7, "--hours", 0.1)
    lines = cohabit("trace", "synth", "diurnal", *wish).stdout.splitlines()
    assert len(lines) == 7
    assert all(json.loads(line)["model"] in {"a", "b"} for line in lines)


def test_a_wrong_line_of_the_trace_is_named(config: Path) -> None:
    trace = config.with_name("t.jsonl")
    trace.write_text('{"t": 0, "model": "a"}\n{"t": 1, "model": "c"}\n')
    result = cohabit("simulate", config, trace)
    assert isinstance(result.exception, Refused)
    assert str(result.exception) == f"{trace}:2: there is no model 'c'; there are: a, b."


def test_only_svg_is_drawn(config: Path) -> None:
    result = cohabit("simulate", config, synthesised(config), "--picture", "day.png")
    assert "day.svg" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("broker: {device: simulated, capacity_mib: 9}", "simulated.models"),
        (CONFIG.replace("device: simulated", "device: cpu").replace("  foreign", "  #"), "device"),
        (CONFIG.replace("load_s: 2", "load_s: fast"), "load_s"),
    ],
)
def test_a_configuration_that_cannot_be_replayed_is_blamed(
    config: Path, text: str, said: str
) -> None:
    trace = synthesised(config)
    config.write_text(text)
    result = cohabit("simulate", config, trace)
    assert result.exit_code == 2
    assert said in result.stderr
