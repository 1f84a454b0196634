"""Every line says which process wrote it; on a terminal the launcher says it."""

import json
import os
import subprocess
import sys

import pytest

SAYS = """
from chassis import log
log.configure("engine smol", "info")
log.request_id.set("r1")
log.get().info("hello", model="m")
log.get().debug("hidden")
"""


@pytest.mark.parametrize("console", [False, True])
def test_each_line_names_its_process(console: bool) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SAYS],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env={**os.environ, "COHABIT_LOG": "console" if console else ""},
    )
    (line,) = run.stderr.splitlines()
    if console:
        assert "engine smol" not in line
        assert "hello" in line
        return
    said = json.loads(line)
    del said["timestamp"]
    assert said == {
        "event": "hello", "model": "m", "service": "engine smol", "request_id": "r1",
        "level": "info",
    }  # fmt: skip
