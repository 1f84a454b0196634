"""Every transcript in this folder's folders, replayed. They read as documentation."""

import os
import re
from pathlib import Path

import pytest

from services.scheduler.core import scheduler
from tests.sim.broker_world import BrokerWorld
from tests.sim.scheduler_world import SchedulerWorld
from tests.sim.transcript import Commands, TranscriptError, replay

HERE = Path(__file__).parent
WORLDS: dict[str, type[Commands]] = {"broker": BrokerWorld, "scheduler": SchedulerWorld}
TRANSCRIPTS = [path for folder in WORLDS for path in sorted((HERE / folder).glob("*.txt"))]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_transcript(path: Path) -> None:
    written = path.read_text()
    name = f"{path.parent.name}/{path.name}"
    now = "\n".join(replay(written, WORLDS[path.parent.name](), name)) + "\n"
    if os.environ.get("COHABIT_REWRITE"):
        path.write_text(now)
    assert now == written


def test_the_rules_that_transcripts_name_are_those_of_the_core() -> None:
    rules = set(re.findall(r"^ *(\d[a-z]?)\. ", scheduler.__doc__ or "", re.MULTILINE)) - {"0"}
    comments = "".join(path.read_text() for path in (HERE / "scheduler").glob("*.txt"))
    named = re.findall(r"\b[Rr]ules? (\d[a-z]?(?:(?:, | and )\d[a-z]?)*)", comments)
    assert {rule for names in named for rule in re.split(", | and ", names)} == rules


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("frobnicate m", "there is no such command"),
        ("comes", "it goes: comes KEY"),
        ("model m READY plces=1", 'there is no option "plces"'),
        ("model m RAEDY", "RAEDY"),
        ("free a wnats m", 'it goes "NAME wants KEY"'),
        ("done a", "a has not been granted"),
        ("wait 5", '"5" is no length of time'),
        ("lease m perhaps", 'the broker does not answer "perhaps"'),
        ('free "a wants m', "quotation"),
    ],
)
def test_a_bad_command_is_named_with_its_file_and_line(line: str, why: str) -> None:
    text = f"# A comment.\nstart\nmodel m COLD\n{line}\n----\n"
    with pytest.raises(TranscriptError, match=re.escape(f'x.txt:4: "{line}": ')) as raised:
        list(replay(text, SchedulerWorld(), "x.txt"))
    assert why in str(raised.value)


def test_commands_that_no_dashes_follow_are_not_passed_over() -> None:
    with pytest.raises(TranscriptError, match=r'x\.txt:4: "wait 5s" has no line of dashes'):
        list(replay("start\n----\n\nwait 5s\n", SchedulerWorld(), "x.txt"))
