"""Every transcript in this folder, replayed against the core. They read as documentation."""

import os
from pathlib import Path

import pytest

from tests.sim.scheduler_world import replay

TRANSCRIPTS = sorted((Path(__file__).parent / "scheduler").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    written = path.read_text()
    now = "\n".join(replay(written)) + "\n"
    if os.environ.get("COHABIT_REWRITE"):
        path.write_text(now)
    assert now == written


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8
