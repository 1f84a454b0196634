"""What `cohabit jobs` says of jobs, and where it puts their results."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from chassis.errors import Fault, Reason
from cli.console import Refused
from cli.jobs import watching
from cli.jobs.page import job_sections, job_table, not_there
from cli.jobs.saving import name_of, planned
from cli.jobs.words import bar, stage, state_words, step_words
from cli.main import app
from cli.new_file import check_free, new_file
from cli.reach import sentence
from cohabit.jobs.v1 import jobs_pb2 as pb

NOW = 1_700_000_000_000


def text_of(*parts: RenderableType, width: int = 160) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


def job(state: "pb.JobState.ValueType" = pb.JOB_STATE_RUNNING, count: int = 3) -> pb.Job:
    made = pb.Job(
        job_id="job_1",
        kind=pb.JOB_KIND_IMAGE_GENERATION,
        state=state,
        progress=0.4,
        created_unix_ms=NOW - 90_000,
        started_unix_ms=NOW - 80_000,
    )
    made.spec.image_generation.picture.prompt = "a\x1b[2Jlake\nat dawn"
    for index in range(count):
        made.steps.add(kind=pb.STEP_KIND_GENERATE, state=pb.STEP_STATE_PENDING, index=index)
    made.steps[0].state = pb.STEP_STATE_RUNNING
    return made


def with_results(*indexes: int) -> pb.Job:
    made = job(pb.JOB_STATE_SUCCEEDED)
    for index in indexes:
        made.results.add(
            result_id=f"image-{index}",
            role=pb.RESULT_ROLE_IMAGE,
            index=index,
            mime_type="image/webp",
            size_bytes=2_048,
        )
    return made


def test_what_happens_now_in_words() -> None:
    made = job()
    assert stage(made) == "running: painting 1 of 3"
    made.steps[0].state = pb.STEP_STATE_WAITING
    assert stage(made) == "running: painting 1 of 3, waiting for its turn"
    made.steps[0].failure.message = "It broke\ndown."
    assert stage(made).endswith("painting 1 of 3, to be tried again: It broke down.")
    made.cancel_requested = True
    assert stage(made).startswith("running, to be cancelled: painting")
    made.steps[0].state = pb.STEP_STATE_DONE
    assert stage(made) == "running, to be cancelled"


def test_queued_jobs_have_a_place() -> None:
    made = pb.Job(state=pb.JOB_STATE_QUEUED)
    assert state_words(made) == "queued, next"
    made.position = 4
    assert state_words(made) == "queued, 4 before it"


def test_a_lonely_step_is_not_counted() -> None:
    made = job(count=1)
    made.steps.add(kind=pb.STEP_KIND_MATTE)
    assert [step_words(made, step) for step in made.steps] == ["painting", "cutting out"]


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_bar_is_of_one_length(progress: float) -> None:
    assert len(bar(progress).plain.split(" ")[0]) == 8


def test_a_bar_is_full_at_the_end_alone() -> None:
    assert bar(0.999).plain.startswith("━━━━━━━─ ")
    assert bar(1).plain == "━━━━━━━━ 100%"


def test_the_list_has_a_line_a_job() -> None:
    failed = job(pb.JOB_STATE_FAILED)
    failed.failure.message = "Its model\nis \x1b[31mgone. " + "x" * 400
    shown = text_of(job_table([job(), failed], NOW))
    lines = shown.splitlines()
    assert len(lines) == 4
    assert "job_1  images  running  ━━━─────  40%  1 min" in lines[2]
    assert "Its model is [31mgone." in lines[3]
    assert lines[3].rstrip().endswith("…")
    assert text_of(job_table([], NOW)) == "Jobs\nnone\n"


@pytest.mark.parametrize("width", [80, 100, 240])
def test_an_id_stays_whole_on_any_terminal(width: int) -> None:
    long, failed = job(), job(pb.JOB_STATE_FAILED)
    long.job_id = failed.job_id = "job_" + "f" * 32
    failed.failure.message = "word " * 90
    shown = text_of(job_table([long, failed], NOW), width=width)
    assert shown.count(long.job_id) == 2
    assert max(map(len, shown.splitlines())) <= width


def test_one_job_is_told_in_full() -> None:
    made = with_results(0)
    made.ended_unix_ms, made.expires_unix_ms = NOW - 5_000, NOW + 7_200_000
    made.results[0].expired = True
    shown = text_of(*job_sections(made, NOW))
    assert shown.startswith('job_1  image generation, succeeded\n"a[2Jlake at dawn"\n')
    assert "created 1 min ago, ended 5 s ago, took 75.0 s, kept for 2 h" in shown
    assert "image-0  image" in shown
    assert "expired" in shown


def told(made: Sequence[pb.Job], capsys: pytest.CaptureFixture[str]) -> list[str]:
    with watching.told() as tell:
        for one in made:
            tell(one)
    return capsys.readouterr().err.splitlines()


def test_only_changes_are_told_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    done = job(pb.JOB_STATE_SUCCEEDED)
    done.progress = 1
    assert told([job(), job(), done], capsys) == [
        " 40%  running: painting 1 of 3",
        "100%  succeeded",
    ]


# -- saving --------------------------------------------------------------------------------------


@given(st.integers(0, 9), st.integers(0, 2**32 - 1), st.text())
def test_names_hold_nothing_foreign(role: int, index: int, mime_type: str) -> None:
    result = pb.Result(result_id="../x", role=role, index=index, mime_type=mime_type)  # type: ignore[arg-type]
    assert Path(name_of(result)).name == name_of(result)
    assert not name_of(result).startswith(".")


def test_results_are_named_by_what_they_are() -> None:
    cutout = pb.Result(role=pb.RESULT_ROLE_CUTOUT, index=2, mime_type="image/jpeg")
    assert name_of(cutout) == "cutout-2.jpg"


def test_nothing_is_planned_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "image-1.webp").write_bytes(b"mine")
    with pytest.raises(Refused, match=r"image-1\.webp exists"):
        planned(with_results(0, 1), tmp_path, force=False)
    places = planned(with_results(0, 1), tmp_path, force=True)
    assert places == {f"image-{i}": tmp_path / f"image-{i}.webp" for i in (0, 1)}
    made = with_results(0)
    made.results[0].expired = True
    with pytest.raises(Refused, match="have expired"):
        planned(made, tmp_path / "none", force=False)
    assert not (tmp_path / "none").exists()


def test_why_there_is_nothing_to_save() -> None:
    assert not_there(with_results(0)) == ""
    assert not_there(job()).startswith("job_1 has no results yet (running, 40%)")
    assert not_there(job(pb.JOB_STATE_FAILED)) == "job_1 has no results: it failed."


def write_and_fail(path: Path) -> None:
    with new_file(path, force=False) as out:
        out.write(b"half")
        raise RuntimeError


def write_over(path: Path) -> None:
    with new_file(path, force=False) as out:
        out.write(b"new")
        path.write_bytes(b"old")


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with pytest.raises(RuntimeError):
        write_and_fail(path)
    assert list(tmp_path.iterdir()) == []
    with new_file(path, force=False) as out:
        out.write(b"whole")
    assert path.read_bytes() == b"whole"


def test_a_file_that_came_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with pytest.raises(Refused, match="exists"):
        write_over(path)
    assert path.read_bytes() == b"old"
    with new_file(path, force=True) as out:
        out.write(b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_where_no_file_can_be_made(tmp_path: Path) -> None:
    for path, why in ((tmp_path, "is a folder"), (tmp_path / "no" / "a.png", "no folder")):
        with pytest.raises(Refused, match=why):
            check_free(path, force=True)


# -- words of the command ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--watch"], "--watch is for one job"),
        (["--save", "x"], "--save is for one job"),
        (["job_1", "--state", "failed"], "--state is for the list"),
        (["job_1", "--cancel", "--watch"], "--cancel stands alone"),
        (["job_1", "--force"], "--force is for --save"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], why: str) -> None:
    refused = CliRunner().invoke(app, ["jobs", *words]).exception
    assert isinstance(refused, Refused)
    assert str(refused).startswith(why)


def test_fields_are_called_as_the_command_calls_them() -> None:
    options = {"width_px": "--size", "height_px": "--size", "loras": "--lora"}

    def said(message: str) -> str:
        return sentence(Fault(Reason.INVALID_REQUEST, message), options)

    assert said("A smaller `width_px` and `height_px`.") == "A smaller `--size`."
    assert said("`loras[0].scale` must be from -4 to 4") == "`--lora` must be from -4 to 4"
    assert said("`other` and `not a field`") == "`other` and `not a field`"
