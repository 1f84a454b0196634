"""The units for systemd: systemd itself finds nothing wrong, and they start what there is."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from cli import notify
from cli.launcher import STOP_S

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
WAIT = UNITS / "wait-for-driver"


def directives(name: str) -> dict[str, str]:
    lines = (UNITS / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze to ask")
    for unit in UNITS.glob("*.service"):
        # It looks for the programs, which are installed later.
        text = re.sub(r"/opt/cohabit/\S+/(cohabit|wait-for-driver)", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(re.sub(r"(?m)^User=.*|^Group=.*", "", text))
    said = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / "cohabit.service")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    own = [line for line in said.stderr.splitlines() if str(tmp_path) in line or "cohabit" in line]
    assert (own, said.returncode) == ([], 0), said.stderr


def test_the_house_has_time_to_stop_and_its_configuration_is_not_retried() -> None:
    unit = directives("cohabit.service")
    assert float(unit["TimeoutStopSec"]) > STOP_S
    assert unit["RestartPreventExitStatus"] == "2"
    assert unit["ExecStart"].split()[1:3] == ["up", "--config"]
    assert "cohabit-driver.service" in unit["Requires"]
    assert "cohabit-driver.service" in unit["After"]


def waited(tmp_path: Path, card: str | None, driver: str) -> "subprocess.CompletedProcess[str]":
    """The script on a machine with `card` (vendor, class) whose nvidia-smi is `driver`."""
    device, programs = tmp_path / "sys/bus/pci/devices/0000:01:00.0", tmp_path / "bin"
    device.mkdir(parents=True)
    programs.mkdir()
    vendor, kind = (card or "0x8086 0x030000").split()
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    (programs / "nvidia-smi").write_text(f"#!/bin/sh\n{driver}\n")
    (programs / "nvidia-smi").chmod(0o755)
    (programs / "sleep").write_text("#!/bin/sh\n")  # time is the script's own matter
    (programs / "sleep").chmod(0o755)
    return subprocess.run(
        [str(WAIT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={
            "PATH": f"{programs}:/usr/bin:/bin",
            "SYSFS": str(tmp_path / "sys"),
            "PATIENCE_S": "3",
        },
    )


def test_without_a_card_nothing_is_waited_for(tmp_path: Path) -> None:
    done = waited(tmp_path, None, "exit 9")
    assert (done.returncode, "no NVIDIA card" in done.stdout) == (0, True)


def test_a_driver_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    count = tmp_path / "asked"
    driver = f'echo x >> {count}; [ "$(wc -l < {count})" -ge 3 ] && echo "GPU 0: A card"'
    done = waited(tmp_path, "0x10de 0x030200", driver)
    assert (done.returncode, done.stdout) == (0, "GPU 0: A card\n")
    assert len(count.read_text().split()) == 3


def test_a_driver_that_never_comes_is_told(tmp_path: Path) -> None:
    done = waited(tmp_path, "0x10de 0x030000", "echo no devices were found; exit 6")
    assert (done.returncode, "no devices were found" in done.stderr) == (1, True)


@pytest.mark.parametrize("abstract", [False, True])
def test_the_manager_hears_that_the_house_is_up(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"@cohabit-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if abstract else name)
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify.ready("Serves")
        assert manager.recv(1024) == b"READY=1\nSTATUS=Serves"
        notify.status("Waits")
        assert manager.recv(1024) == b"STATUS=Waits"


def test_a_manager_that_is_gone_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    notify.ready("Serves")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify.ready("Serves")
