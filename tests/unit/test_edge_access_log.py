"""The files of the access log: bounded, whole lines, and never waited for."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from chassis.config import ConfigError
from edge.signals import access_log
from edge.signals.access_log import to_files

TOLD: dict[str, Any] = {"route": "/v1/x", "status": 200, "ms": 1.5}
PERCENT: dict[str, Any] = {"route": "/%s%d", "status": 200}


def dropped() -> float:
    return REGISTRY.get_sample_value("cohabit_access_log_dropped_lines_total") or 0.0


def test_lines_are_whole_and_say_when(tmp_path: Path) -> None:
    path = tmp_path / "made" / "access.log"
    with to_files(path, 1 << 20) as write:
        write(TOLD)
        write(PERCENT)
    first, second = map(json.loads, path.read_text().splitlines())
    assert {**first, "timestamp": ""} == {"timestamp": "", "request_id": "", **TOLD}
    assert first["timestamp"].endswith("Z")
    assert second["route"] == "/%s%d"


def test_old_files_go_and_the_newest_lines_stay(tmp_path: Path) -> None:
    with to_files(tmp_path / "a.log", 2_000) as write:
        for number in range(500):
            write(TOLD | {"n": number})
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    assert all(path.stat().st_size <= 2_000 for path in files)
    numbers = [
        json.loads(line)["n"] for path in reversed(files) for line in path.read_text().splitlines()
    ]
    assert numbers == list(range(500))[-len(numbers) :]
    assert len(numbers) > 40


def test_a_disk_that_is_slow_costs_lines_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, free = threading.Event(), threading.Event()

    def emit(_handler: object, _record: object) -> None:
        stuck.set()
        free.wait(10)

    monkeypatch.setattr(access_log._Files, "emit", emit)
    before = dropped()
    with to_files(tmp_path / "a.log", 2_000, waiting=5) as write:
        write(TOLD)
        assert stuck.wait(10)  # one is being written
        for _ in range(12):  # five wait, and seven find no room
            write(TOLD)
        assert dropped() == before + 7
        free.set()


def test_a_disk_that_does_not_keep_up_holds_up_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, free = threading.Event(), threading.Event()

    def emit(_handler: object, _record: object) -> None:
        stuck.set()
        free.wait(10)

    monkeypatch.setattr(access_log._Files, "emit", emit)
    monkeypatch.setattr(access_log, "_LAST_LINES_S", 0.05)
    threads, before = set(threading.enumerate()), dropped()
    log = to_files(tmp_path / "a.log", 2_000, waiting=2)
    write = log.__enter__()
    (writer,) = set(threading.enumerate()) - threads
    write(TOLD)
    assert stuck.wait(10)
    write(TOLD)
    write(TOLD)  # no room is left for the end
    stopping = threading.Thread(target=log.__exit__, args=(None, None, None), daemon=True)
    stopping.start()
    stopping.join(0.5)  # it waits for the disk; the oldest line has made room
    assert dropped() == before + 1
    free.set()
    stopping.join(10)
    assert not stopping.is_alive()
    assert not writer.is_alive()


def test_a_disk_that_is_full_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(access_log._Files, "shouldRollover", full)
    before = dropped()
    with to_files(tmp_path / "a.log", 2_000) as write:
        write(TOLD)
    assert dropped() == before + 1


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.log").mkdir()
    with (
        pytest.raises(ConfigError, match=r"edge\.access_log_file: .* cannot be written: Is a dir"),
        to_files(tmp_path / "a.log", 2_000),
    ):
        raise AssertionError
