"""Stages that overlap, and what is left of a request that is cancelled."""

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest

from chassis.errors import Fault, Reason
from imaging.values import Bounds, Encoding, Format, Pixels
from services.matte.host_work import HostWork
from services.matte.networks.network import Matted
from services.matte.pipeline import Pipeline, Stage
from services.matte.solving import Solved
from services.matte.threads import on_thread
from services.matte.values import Composition, Estimation, PlainBackdrop, Removal
from tests.matte_kit import file_of, subject

DEADLINE_S = 20.0
PICTURE = Removal(file_of(subject()), Encoding(Format.PNG))


class Whole:
    """A network that takes everything for subject, after `first`."""

    device = "cpu"
    solves = False

    def __init__(self, first: Callable[[], object] = lambda: None) -> None:
        self.first = first
        self.calls = 0

    def matte(self, rgb: Pixels, *, colors: bool) -> Matted:
        self.calls += 1
        self.first()
        return Matted(np.full(rgb.shape[:2], 255, np.uint8))

    def solve(self, rgb: Pixels, alpha: Pixels) -> Solved:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to give back."""


class Waits:
    """Events of stages, waited for with a deadline."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Stage, bool]] = []
        self._changed = threading.Condition()

    def observe(self, number: int, stage: Stage, begins: bool) -> None:
        with self._changed:
            self.seen.append((number, stage, begins))
            self._changed.notify_all()

    def until(self, *event: object) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: event in self.seen, DEADLINE_S), event


async def test_while_the_network_runs_one_another_is_decoded_solved_and_encoded() -> None:
    """The network holds the second picture until the first is answered, and the first until the
    second is decoded: without overlap neither would ever end.
    """
    waits = Waits()
    needed = iter([(2, Stage.DECODE, False), (1, Stage.ENCODE, False)])
    pipeline = Pipeline(Whole(lambda: waits.until(*next(needed))), 2, Bounds(), waits.observe)
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(pipeline.remove(PICTURE), pipeline.remove(PICTURE))
    pipeline.close()


async def test_beyond_its_places_nothing_is_even_decoded() -> None:
    waits, go = Waits(), threading.Event()
    pipeline = Pipeline(Whole(lambda: go.wait(DEADLINE_S)), 1, Bounds(), waits.observe)
    first = asyncio.create_task(pipeline.remove(PICTURE))
    second = asyncio.create_task(pipeline.remove(PICTURE))
    await asyncio.to_thread(waits.until, 1, Stage.NETWORK, True)
    assert pipeline.running == 2
    assert not any(number == 2 for number, _, _ in waits.seen)
    go.set()
    (_, early), (_, late) = await asyncio.gather(first, second)
    assert late.engine_wait_ms >= early.network_ms
    assert pipeline.running == 0
    pipeline.close()


@pytest.mark.parametrize("stage", list(Stage))
async def test_a_cancel_is_over_with_the_stage_and_nothing_follows(stage: Stage) -> None:
    waits, go = Waits(), threading.Event()

    def hold(number: int, at: Stage, begins: bool) -> None:
        waits.observe(number, at, begins)
        if (number, at, begins) == (1, stage, True):
            assert go.wait(DEADLINE_S)

    pipeline = Pipeline(Whole(), 1, Bounds(), hold)
    running = asyncio.create_task(pipeline.remove(PICTURE))
    await asyncio.to_thread(waits.until, 1, stage, True)
    running.cancel()
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=0.02)
    assert not done  # its thread still works: the permit must not be free
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert waits.seen[-1] == (1, stage, False)
    assert pipeline.running == 0
    await pipeline.remove(PICTURE)  # and its place is free
    pipeline.close()


async def test_the_network_takes_one_at_a_time_and_who_waits_for_it_is_cancelled_at_once() -> None:
    waits, go = Waits(), threading.Event()
    network = Whole(lambda: go.wait(DEADLINE_S))
    pipeline = Pipeline(network, 2, Bounds(), waits.observe)
    first = asyncio.create_task(pipeline.remove(PICTURE))
    await asyncio.to_thread(waits.until, 1, Stage.NETWORK, True)
    second = asyncio.create_task(pipeline.remove(PICTURE))
    async with asyncio.timeout(DEADLINE_S):
        while not pipeline._one._work_queue.qsize():  # noqa: ASYNC110  nobody tells of a queue
            await asyncio.sleep(0.001)
    second.cancel()
    done, _ = await asyncio.wait([second], timeout=DEADLINE_S / 2)
    assert done
    assert second.cancelled()
    go.set()
    await first
    assert network.calls == 1
    pipeline.close()


class Solving(Whole):
    """As a network on a card: it solves by itself."""

    solves = True

    def matte(self, rgb: Pixels, *, colors: bool) -> Matted:
        alpha = np.full(rgb.shape[:2], 128, np.uint8)
        return Matted(alpha, self.solve(rgb, alpha) if colors else None, 1.0)

    def solve(self, rgb: Pixels, alpha: Pixels) -> Solved:
        return Solved(np.full_like(rgb, 9), np.full_like(rgb, 8))


async def test_a_network_on_a_card_solves_there_except_under_another_alpha() -> None:
    from imaging.decode import decode  # noqa: PLC0415

    waits = Waits()
    pipeline = Pipeline(Solving(), 1, Bounds(), waits.observe)
    removed, times = await pipeline.remove(PICTURE)
    assert removed.image is not None
    assert set(decode(removed.image.data, Bounds(), "x").rgb.ravel().tolist()) == {9}
    assert times.solve_ms == 1.0
    assert not any(stage is Stage.SOLVE for _, stage, _ in waits.seen)
    rgba = np.dstack([subject(), np.full((48, 64), 77, np.uint8)])
    await pipeline.remove(Removal(file_of(rgba), Encoding(Format.PNG)))
    assert any(stage is Stage.SOLVE for _, stage, _ in waits.seen)
    pipeline.close()


async def test_the_host_takes_a_few_and_refuses_the_rest_with_a_time() -> None:
    work = HostWork(1, Bounds())
    cutout = np.dstack([subject(), np.full((48, 64), 77, np.uint8)])
    composition = Composition(file_of(cutout), PlainBackdrop((1, 2, 3)), Encoding(Format.PNG))
    first = asyncio.create_task(work.compose(composition))
    await asyncio.sleep(0)  # it has begun
    with pytest.raises(Fault) as caught:
        await work.compose(composition)
    assert caught.value.reason is Reason.SATURATED
    assert caught.value.retry_after_s
    done, times = await first
    assert (done.width_px, done.height_px) == (64, 48)
    assert 0 < times.decode_ms + times.encode_ms <= times.total_ms
    matte = file_of(np.full((48, 64), 77, np.uint8))
    estimated, times = await work.estimate(Estimation(file_of(subject()), matte))
    assert estimated.background is not None
    assert times.solve_ms > 0
    with pytest.raises(Fault):  # and a fault gives the place back
        await work.estimate(Estimation(b"?", matte))
    await work.compose(composition)
    work.close()


async def test_a_thread_s_fault_comes_out_as_it_is() -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    def fail() -> None:
        raise Fault(Reason.INVALID_IMAGE, "no")

    with ThreadPoolExecutor(1) as pool, pytest.raises(Fault, match="no"):
        await on_thread(pool, fail)
