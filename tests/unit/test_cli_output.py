"""What the command prints: help, the banner, JSON for scripts, the pieces of a chat stream."""

import json
import re
import shlex
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from chassis.config import ConfigError
from cli import parts
from cli.answers import Answers, as_json, plain
from cli.chat import decode
from cli.console import Refused, printable, size
from cli.health import DOWN, Health
from cli.house import Whole, edge_url
from cli.house import load as load_whole
from cli.main import app
from cli.page import rendered
from cli.tables import sections, show
from cli.up import QUESTION, banner, check_free, complaint, curl, specs
from cohabit.broker.v1 import broker_pb2
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2

GIB = 2**30


def test_help_names_every_subcommand() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for word in ("up", "status", "pull", "chat", "version"):
        assert f" {word} " in result.output


@pytest.mark.parametrize(
    ("command", "option"),
    [("up", "--pull"), ("status", "--json"), ("pull", "--sha256"), ("chat", "--system")],
)
def test_subcommands_describe_their_options(command: str, option: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert option in result.output


def test_version_is_the_distribution_s() -> None:
    said = CliRunner().invoke(app, ["version"]).output
    assert said.strip().count(".") == 2
    assert CliRunner().invoke(app, ["--version"]).output == said


def test_room_is_asked_for_with_a_margin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=GIB))
    parts.ensure_room(tmp_path, int(GIB / 1.05) - 1)
    with pytest.raises(Refused, match=r"too small: 1\.0 GiB are needed, 1\.0 GiB are free"):
        parts.ensure_room(tmp_path, GIB)


def test_the_curl_line_is_one_that_a_shell_takes() -> None:
    words = shlex.split(curl("http://127.0.0.1:1", "it's"))
    assert words[0] == "curl"
    assert words[1] == "http://127.0.0.1:1/v1/chat/completions"
    body = json.loads(words[words.index("-d") + 1])
    assert (body["model"], body["temperature"]) == ("it's", 0)
    assert body["messages"] == [{"role": "user", "content": QUESTION}]


def test_the_readme_asks_the_same_question() -> None:
    assert (Path(__file__).parents[2] / "README.md").read_text().count(QUESTION) == 2


SEEN = [Health("broker", "unix:/r/b.sock", True), Health("edge", "http://h:1", True)]


def whole(folder: Path, models: str) -> Whole:
    path = folder / "cohabit.yaml"
    path.write_text(f"llm: {{models: {{{models}}}}}\n")
    (folder / "models").mkdir()
    return load_whole(path)


def test_the_banner_lists_addresses_and_needs_no_model(tmp_path: Path) -> None:
    assert banner(SEEN, whole(tmp_path, "")) == [
        "Cohabit is up.",
        "  broker  unix:/r/b.sock",
        "  edge    http://h:1",
    ]


def test_the_banner_asks_a_model_that_has_its_file(tmp_path: Path) -> None:
    house = whole(tmp_path, "a: {path: a.gguf}, b: {path: b.gguf}")
    (tmp_path / "models" / "b.gguf").touch()
    *_, missing, try_it, line = banner(SEEN, house)
    assert missing == (
        f"Model a: {tmp_path}/models/a.gguf is not there; "
        "put it there, or name its `source` in the configuration."
    )
    assert (try_it, line) == ("Try:", f"  {curl('http://127.0.0.1:8080', 'b')}")


def test_the_banner_s_pull_line_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights.bin").write_bytes(b"weights")
    house = whole(tmp_path, "a: {path: sub/a.gguf, source: weights.bin}")
    told = banner(SEEN, house)[-1]
    assert told.startswith("Model a: ")
    command, *arguments = shlex.split(told.split("`")[1])
    assert (command, arguments[:2]) == ("cohabit", ["pull", "a"])
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert (tmp_path / "models" / "sub" / "a.gguf").read_bytes() == b"weights"
    assert banner(SEEN, house)[-2] == "Try:"
    (tmp_path / "models" / "sub" / "a.gguf").unlink()
    monkeypatch.chdir(tmp_path)
    assert banner(SEEN, house)[-1].endswith("; get it with `cohabit pull a`.")


def test_the_banner_says_what_is_no_readable_file(tmp_path: Path) -> None:
    house = whole(tmp_path, "a: {path: ., source: weights.bin}, b: {path: loop.gguf}")
    (tmp_path / "models" / "loop.gguf").symlink_to("loop.gguf")
    first, second = banner(SEEN, house)[-2:]
    assert first.endswith("/models is no file; mend that, or correct its path.")
    assert "/models/loop.gguf cannot be read: " in second


def test_the_complaint_names_who_does_not_answer() -> None:
    seen = [Health("broker", "b", True), Health("llm", "l", False, "is down")]
    assert complaint(seen, 60.0)[:2] == ["Not everything answers after 60 s:", "  llm is down"]
    assert "broker" not in "".join(complaint(seen, 60.0))


def test_services_start_in_order_and_out_of_the_working_directory() -> None:
    programs = specs(Path("/c.yaml"), ("broker", "scheduler", "llm"))
    assert [spec.name for spec in programs] == ["broker", "scheduler", "llm", "edge"]
    assert all(tuple(spec.argv[1:3]) == ("-P", "-m") for spec in programs)
    assert all(tuple(spec.argv[-2:]) == ("--config", "/c.yaml") for spec in programs)


def test_a_port_that_is_taken_is_said_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"edge\.listen: another program listens on 127"):
            check_free(url)
    check_free(url)
    check_free("http://localhost:0")


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        ("[::]:80", "http://[::1]:80"),
        ("host:1", "http://host:1"),
    ],
)
def test_the_edge_is_reached_where_it_listens(listen: str, url: str) -> None:
    assert edge_url(listen) == url


def test_controls_are_not_printed() -> None:
    assert printable("a\x1b]0;t\x07b\nc\td\x9b") == "a]0;tb\nc\td"


def test_sizes_in_words() -> None:
    assert [size(0), size(1023), size(1536), size(3 * GIB)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
    ]


def test_chat_reads_deltas_comments_and_the_end() -> None:
    assert decode('data: {"choices":[{"delta":{"content":"hi"}}]}') == "hi"
    assert decode('data: {"choices":[{"delta":{"role":"assistant"}}]}') == ""
    assert decode('data: {"choices":[],"usage":{"total_tokens":3}}') == ""
    assert decode(": queued") == ""
    assert decode("data: [DONE]") is None


def test_chat_turns_an_error_event_into_its_sentence() -> None:
    with pytest.raises(Refused, match="The engine crashed"):
        decode('data: {"error":{"message":"The engine crashed.","type":"server_error"}}')
    with pytest.raises(Refused, match="cannot be read"):
        decode("data: {")


def _answers() -> Answers:
    state = scheduler_pb2.Status(permits_total=4, permits_in_use=1, reconciled=True)
    state.tiers.add(tier=common_pb2.TIER_PAID, waiting=2, queue_limit=64, oldest_wait_ms=1500)
    model = models_pb2.Model(key="smollm2", state=models_pb2.MODEL_STATE_READY, max_instances=1)
    model.footprint.resident_mib = 239
    device = broker_pb2.DeviceMemory(device="cpu", reachable=True, total_mib=16_000)
    lease = broker_pb2.Lease(
        holder="llm/smollm2",
        granted_mib=239,
        tier=common_pb2.TIER_PAID,
        kind=broker_pb2.LEASE_KIND_RESIDENT,
    )
    services = [Health("broker", "unix:b", True), Health("llm", "unix:l", False, "is down")]
    return Answers(services, state, [model], [device], [lease], [])


def test_json_keeps_numbers_and_names_enums() -> None:
    said = json.loads(as_json(_answers()))
    assert said["ok"] is False
    assert said["scheduler"]["tiers"][0] == {
        "tier": "TIER_PAID",
        "waiting": 2,
        "queue_limit": 64,
        "oldest_wait_ms": 1500,
    }
    assert said["leases"][0]["granted_mib"] == 239
    assert said["models"][0]["instances"] == []
    assert "failure" not in said["models"][0]


def test_an_unknown_enum_stays_a_number() -> None:
    assert plain(broker_pb2.Lease(kind=99))["kind"] == 99  # type: ignore[arg-type]


def test_silence_is_null_in_json() -> None:
    said = json.loads(as_json(Answers([], None, None, None, None, ["The broker is silent."])))
    assert said["models"] is None
    assert said["ok"] is False


def test_tables_show_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    show(_answers())
    page = capsys.readouterr().out
    for words in ("1 of 4 permits", "smollm2", "ready", "239 MiB", "paid", "1.5 s", "is down"):
        assert words in page
    assert "\x1b" not in page


def test_a_page_has_blank_lines_between_sections_and_no_trailing_spaces(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(replace(_answers(), leases=[], silent=["The broker is slow."]))
    page = capsys.readouterr().out
    assert not re.search(r"[ \t]$", page, re.MULTILINE)
    heads = [section.splitlines()[0] for section in page.split("\n\n")]
    assert heads[0] == "Services"
    assert heads[2:] == ["Queues", "Models", "Devices", "Leases", "The broker is slow."]
    assert "\nLeases\nnone\n" in page


def test_colours_do_not_hide_trailing_spaces() -> None:
    console = Console(force_terminal=True, width=100, color_system="standard", _environ={})
    page = "\n".join(rendered(console, section) for section in sections(_answers()))
    assert "\x1b[" in page
    assert not re.search(r"[ \t]$", re.sub(r"\x1b\[[0-9;]*m", "", page), re.MULTILINE)


def test_a_house_that_is_not_up_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    down = [Health(name, "x", False, DOWN) for name in ("broker", "edge")]
    answers = Answers(down, None, None, None, None, ["The broker is silent."])
    assert not answers.well
    show(answers)
    assert capsys.readouterr().out == "Nothing runs here; start it with `cohabit up`.\n"
    assert not replace(answers, services=[*down, Health("llm", "x", True)]).nothing_runs


def test_a_failed_model_is_not_well() -> None:
    well = replace(_answers(), services=[Health("llm", "unix:l", True)])
    assert json.loads(as_json(well))["ok"] is True
    failed = models_pb2.Model(key="m", state=models_pb2.MODEL_STATE_FAILED)
    assert json.loads(as_json(replace(well, models=[failed])))["ok"] is False
