"""The pretended card: what fits, what does not, and what is left when processes die."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chassis.simulated_card import CardError, OutOfMemory, SimulatedCard

# Does what it is told, line by line, and says how it went; `hold` keeps the lock for good.
CHILD = """
import sys, threading
from pathlib import Path
from chassis.simulated_card import OutOfMemory, SimulatedCard
card = SimulatedCard(Path(sys.argv[1]))
for line in sys.stdin:
    what, name, mib = line.split()
    try:
        if what == "hold":
            with card._locked():
                print("held", flush=True)
                threading.Event().wait()
        if what == "storm":
            for _ in range(int(mib)):
                card.allocate(name, 10)
                card.free(name)
        else:
            card.allocate(name, int(mib))
        print("ok", flush=True)
    except OutOfMemory as error:
        print("full", flush=True)
"""


class Child:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def tell(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def does(self, words: str) -> str:
        self.tell(words)
        return self.said()


@contextmanager
def child(path: Path) -> Iterator[Child]:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


@pytest.fixture
def card(tmp_path: Path) -> SimulatedCard:
    made = SimulatedCard(tmp_path / "run" / "sim0.card", lock_wait_s=0.05)
    made.create(1000)
    return made


def path_of(card: SimulatedCard) -> Path:
    return card._path


def test_what_is_held_is_used(card: SimulatedCard) -> None:
    card.allocate("weights", 600)
    card.allocate("peak", 300)
    assert (card.capacity_mib, card.used_mib()) == (1000, 900)
    held = {(each.pid, each.name): each.mib for each in card.used_by()}
    assert held == {(os.getpid(), "weights"): 600, (os.getpid(), "peak"): 300}
    card.allocate("weights", 700)  # counts from nothing, not on top of the 600
    card.allocate("weights", 100)
    card.free("peak")
    card.free("peak")
    assert card.used_mib() == 100


def test_what_does_not_fit_is_refused_counted_and_changes_nothing(card: SimulatedCard) -> None:
    card.allocate("weights", 600)
    with pytest.raises(OutOfMemory, match="401 MiB are wanted for 'peak' and the card has 400"):
        card.allocate("peak", 401)
    with pytest.raises(OutOfMemory):
        card.allocate("weights", 1001)
    assert (card.used_mib(), card.out_of_memory_count) == (600, 2)
    card.allocate("peak", 400)


def test_taking_stops_at_what_there_is(card: SimulatedCard) -> None:
    card.allocate("weights", 600)
    assert card.take("foreign", 300, leave_mib=150) == 250
    assert card.take("foreign", 300, leave_mib=200) == 250  # gives nothing back by itself
    assert card.take("other", 300, leave_mib=200) == 0
    card.allocate("weights", 100)
    assert card.take("foreign", 300) == 300
    assert card.out_of_memory_count == 0


def test_a_second_making_keeps_what_the_living_hold(card: SimulatedCard) -> None:
    card.allocate("weights", 600)
    card.create(500)
    assert (card.capacity_mib, card.used_mib()) == (500, 600)
    with pytest.raises(OutOfMemory):
        card.allocate("peak", 1)
    card.allocate("weights", 550)  # less than before always fits
    assert (card.used_mib(), card.out_of_memory_count) == (550, 1)


@pytest.mark.parametrize("name", ["none.card", "no folder/none.card"])
def test_a_card_that_nobody_made_says_so(tmp_path: Path, name: str) -> None:
    absent = SimulatedCard(tmp_path / name)
    for use in (absent.used_mib, absent.used_by, lambda: absent.allocate("x", 1)):
        with pytest.raises(CardError, match="the broker makes it when it starts"):
            use()


@pytest.mark.parametrize("torn", [b"", b"{", b'{"capacity_mib":1}', b"\xff\0", b"[" * 9999])
def test_a_file_that_is_no_card_is_refused_and_made_anew(card: SimulatedCard, torn: bytes) -> None:
    path_of(card).write_bytes(torn)
    with pytest.raises(CardError, match="is not a simulated card; restart the broker"):
        card.allocate("x", 1)
    card.create(700)
    card.allocate("x", 700)


def test_wrong_amounts_and_names_are_refused(card: SimulatedCard) -> None:
    with pytest.raises(ValueError, match="got -1"):
        card.allocate("x", -1)
    with pytest.raises(ValueError, match="got 0"):
        card.create(0)
    with pytest.raises(CardError, match="at most 256 characters"):
        card.allocate("x" * 257, 1)


def test_the_names_are_bounded(card: SimulatedCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chassis.simulated_card._MAX_ENTRIES", 2)
    card.allocate("a", 1)
    card.allocate("b", 1)
    card.allocate("b", 2)
    with pytest.raises(CardError, match="at most 2 of them in use"):
        card.allocate("c", 1)


def test_processes_share_it_and_their_death_frees(card: SimulatedCard) -> None:
    card.allocate("weights", 100)
    with child(path_of(card)) as other:
        assert other.does("allocate weights 700") == "ok"  # the same name, another process
        assert other.does("allocate peak 300") == "full"
        assert (card.used_mib(), card.out_of_memory_count) == (800, 1)
        with pytest.raises(OutOfMemory):
            card.allocate("peak", 201)
        other.process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, other.process.pid, os.WEXITED | os.WNOWAIT)
        assert card.used_mib() == 100  # also while nobody has reaped it
    card.allocate("peak", 900)


def test_a_process_of_the_same_number_is_another(card: SimulatedCard) -> None:
    card.allocate("weights", 600)
    path = path_of(card)
    (mine,) = card.used_by()
    old = path.read_bytes().replace(f'"began":{mine.began}'.encode(), b'"began":1')
    path.write_bytes(old)
    assert card.used_mib() == 0


def test_a_kill_in_the_middle_leaves_the_card_whole(card: SimulatedCard) -> None:
    for _ in range(5):
        with child(path_of(card)) as busy:
            assert busy.does("allocate x 10") == "ok"
            busy.tell("storm x 1000000")
            for _ in range(20):
                assert card.used_mib() in (0, 10)
            busy.process.send_signal(signal.SIGKILL)
            busy.process.wait(10)
        assert card.used_mib() == 0
        SimulatedCard(path_of(card)).allocate("mine", 1000)
        card.free("mine")


def test_a_holder_of_the_lock_that_stands_still_is_waited_for_with_a_bound(
    card: SimulatedCard,
) -> None:
    with child(path_of(card)) as stuck:
        assert stuck.does("hold x 0") == "held"
        with pytest.raises(CardError, match=r"has been held for 0.05 s"):
            card.allocate("x", 1)
        assert card.used_mib() == 0  # readers wait for nobody
    card.allocate("x", 1)


def test_threads_and_processes_at_once_never_hold_more_than_there_is(card: SimulatedCard) -> None:
    path, over = path_of(card), []
    card.create(45)

    def storm(name: str) -> None:
        own = SimulatedCard(path)
        for _ in range(100):
            try:
                own.allocate(name, 10)
            except OutOfMemory:
                continue
            over.append(own.used_mib())
            own.free(name)

    with child(path) as one, child(path) as two:
        one.tell("storm x 100")
        two.tell("storm x 100")
        threads = [threading.Thread(target=storm, args=(str(n),)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert {one.said(), two.said()} <= {"ok", "full"}
    assert max(over) <= 40
    assert card.used_mib() == 0
