"""The store of jobs on a real disk: what was written is there again, also after a SIGKILL."""

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from chassis.errors import Fault, Reason
from services.jobs.core.life import files_of
from services.jobs.core.values import Failure, Job, Put, Remove
from services.jobs.files import PIECE_BYTES, Files
from services.jobs.store import NAME, Store, StoreError
from tests.jobs_world import World, draft

ROOT = Path(__file__).parents[2]


def jobs_of_all_kinds() -> list[Job]:
    """Some in every state, with all that a job can hold."""
    world = World()
    world.submit(draft("ended", "backdrop", key="k", input_bytes=10))
    for _ in range(3):
        world.made("ended")
    world.submit(draft("waits", "three"))
    world.made("waits")
    world.failed("waits", "queue_full", 5_000)
    world.submit(draft("broken"))
    world.failed("broken", "never_fits")
    world.submit(draft("runs", "foreground"))
    world.submit(draft("runs-too", input_bytes=5))
    world.cancel("runs")
    world.submit(draft("queued"))
    return list(world.rows.values())


def written(store: Store, *effects: Put | Remove) -> None:
    store.write(effects, b"spec")


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    jobs = jobs_of_all_kinds()
    big = replace(
        jobs[0].steps[2].outcomes[0], seed=2**64 - 1, sha256=hashlib.sha256(b"x").digest()
    )
    steps = (*jobs[0].steps[:2], replace(jobs[0].steps[2], outcomes=(big,)))
    jobs[0] = replace(jobs[0], steps=steps)
    store = Store(tmp_path)
    written(store, *map(Put, jobs))
    store.close()
    store = Store(tmp_path)
    assert store.jobs() == jobs
    assert store.spec("queued") == b"spec"
    assert store.spec("unknown") is None
    store.close()


def test_a_job_is_written_over_and_removed_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    world = World()
    store = Store(tmp_path)
    world.submit(draft("a", "three"))
    written(store, Put(world.rows["a"]))
    for _ in range(3):
        world.made("a")
        store.write([Put(world.rows["a"])])
    assert store.jobs() == [world.rows["a"]]
    assert store.spec("a") == b"spec", "the spec of an old job is not touched"
    store.write([Remove("a")])
    assert store.jobs() == []
    store.close()
    with sqlite3.connect(tmp_path / NAME) as db:
        for table in ("jobs", "steps", "outcomes"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    db.close()


def test_a_batch_is_written_wholly_or_not_at_all(tmp_path: Path) -> None:
    world = World()
    world.submit(draft("a", key="k"))
    world.submit(draft("b"))
    first, second = world.rows["a"], replace(world.rows["b"], idempotency_key="k")
    store = Store(tmp_path)
    with pytest.raises(sqlite3.IntegrityError):
        written(store, Put(first), Put(second))
    assert store.jobs() == []
    written(store, Put(first))
    assert store.jobs() == [first]
    store.close()


def test_failures_keep_their_words(tmp_path: Path) -> None:
    world = World()
    world.submit(draft("a"))
    job = replace(world.rows["a"], failure=Failure("never_fits", 'It said: "größer".', 7))
    store = Store(tmp_path)
    written(store, Put(job))
    assert store.jobs() == [job]
    store.close()


def test_two_services_cannot_share_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="another job service"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_a_foreign_file_and_a_newer_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(StoreError, match="put back the right file"):
        Store(tmp_path)
    (tmp_path / NAME).unlink()
    Store(tmp_path).close()
    db = sqlite3.connect(tmp_path / NAME)
    db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(StoreError, match="version 99"):
        Store(tmp_path)


_WRITER = """
import sys
from pathlib import Path
from services.jobs.core.values import Put
from services.jobs.files import Files
from services.jobs.store import Store
from tests.jobs_world import World, draft

store, files = Store(Path(sys.argv[1])), Files(Path(sys.argv[1]) / "files")
world = World()
for number in range(100_000):
    name = f"j{number}"
    files.write(name, "image", bytes(50))
    world.submit(draft(name, "foreground", input_bytes=50))
    store.write([Put(world.rows[name])], b"spec")
    print(f"accepted {name}", flush=True)
    for job_id in list(world.calls):
        made = world.made(job_id, 20)
        files.write(job_id, made.name, bytes(20))
        store.write([Put(world.rows[job_id])])
        print(f"recorded {job_id} {made.name}", flush=True)
"""


@pytest.mark.parametrize("lines", [1, 7, 20])
def test_what_was_answered_survives_a_sigkill(tmp_path: Path, lines: int) -> None:
    """It is killed at once when it has said its n-th word, in the middle of whatever it does."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'gen'}"},
    ) as writer:
        assert writer.stdout is not None
        said = [next(writer.stdout).split() for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        said += [line.split() for line in writer.stdout]
    store, files = Store(tmp_path), Files(tmp_path / "files")
    jobs = {job.job_id: job for job in store.jobs()}
    files.sweep({job_id: files_of(job) for job_id, job in jobs.items()})
    for word, job_id, *names in said:
        assert job_id in jobs or word == "recorded"
        steps = [made.name for step in jobs[job_id].steps for made in step.outcomes]
        assert set(names) <= set(steps)
    for job in jobs.values():
        for name, size in files_of(job).items():
            assert len(files.read(job.job_id, name)) == size
    store.close()


# -- files ---------------------------------------------------------------------------------------


def test_a_file_is_read_in_pieces_from_any_offset(tmp_path: Path) -> None:
    files, data = Files(tmp_path), os.urandom(2 * PIECE_BYTES + 5)
    wrote = files.write("j", "a", data)
    assert (wrote.size_bytes, wrote.sha256) == (len(data), hashlib.sha256(data).digest())
    for offset in (0, 1, PIECE_BYTES, len(data) - 1, len(data)):
        pieces = list(files.pieces("j", "a", offset))
        assert b"".join(piece for _, piece in pieces) == data[offset:]
        assert all(len(piece) <= PIECE_BYTES for _, piece in pieces)
        at = offset
        for place, piece in pieces:
            assert place == at
            at += len(piece)


def test_the_sweep_takes_what_nobody_needs_and_nothing_else(tmp_path: Path) -> None:
    files = Files(tmp_path / "files")
    for job, name in (("a", "kept"), ("a", "lost"), ("b", "lost")):
        files.write(job, name, b"x")
    (tmp_path / "files" / "a" / "kept.draft").write_bytes(b"half")
    gone = files.sweep({"a": {"kept": 1}, "c": {"missing": 1}})
    assert sorted(gone) == ["a/kept.draft", "a/lost", "b/lost"]
    assert [p.name for p in (tmp_path / "files").iterdir()] == ["a"]
    assert files.read("a", "kept") == b"x"


def test_a_disk_that_cannot_be_written_is_a_fault_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "files").write_bytes(b"in the way")
    with pytest.raises(Fault) as caught:
        Files(tmp_path / "files").write("j", "a", b"x")
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE


def test_a_full_disk_is_said_to_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("services.jobs.files.os.fsync", full)
    with pytest.raises(Fault) as caught:
        Files(tmp_path).write("j", "a", b"x")
    assert caught.value.reason is Reason.STORAGE_FULL
    assert not list((tmp_path / "j").iterdir())


def test_dropping_twice_is_no_matter(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("j", "a", b"x")
    files.drop("j", ("a", "b"))
    files.drop("j", ("a",))
    files.remove("j")
    assert not list(tmp_path.iterdir())


def test_the_last_of_a_disk_is_left_to_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=(16 << 20) + 9)

    monkeypatch.setattr("services.jobs.files.shutil.disk_usage", usage)
    assert Files(tmp_path).write("j", "a", b"x" * 9).size_bytes == 9
    with pytest.raises(Fault) as caught:
        Files(tmp_path).write("j", "b", b"x" * 10)
    assert caught.value.reason is Reason.STORAGE_FULL
    assert [path.name for path in (tmp_path / "j").iterdir()] == ["a"]
