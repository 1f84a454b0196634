"""Random histories of decoding: real engines with random models, and more work than fits.

Requests with prompts that begin alike come a few steps apart, with any number of choices, tiers,
scopes, samplers and forms, into a KV cache that is too small for them; they are read to the end, or
left, or slept on; steps are aborted and fail (`decode_world`). Every request must be told what is
due to it and end once (`decode_wishes`); greedy answers must be those of a lone engine, up to a
near tie; and when all is over the engine holds idle prefixes, within bounds, and nothing else.

What the threads make of a seed differs from run to run, so a failure names the seed, and what was
asked, for people to look at.
"""

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from chassis.errors import Fault, Reason
from services.llm.engine import EngineSpec
from services.llm.values import TokenPrompt
from tests.deep.decode_wishes import CONTEXT_TOKENS, Heard, Wish, Wishes
from tests.deep.decode_world import World, quiet
from tests.deep.history import DEEP, PATIENCE
from tests.engine_kit import answer_of, loaded
from tests.greedy import Greedy, greedy, parted_at
from tests.tiny_gguf import make_tiny_gguf
from tests.tiny_mamba import make_tiny_mamba

pytestmark = PATIENCE

RECURRENT_SHARE = 0.15
HISTORIES = 3000 if DEEP else 40
REQUESTS = 25
HISTORY_S = 60.0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One with attention, of two KiB a token, so that a MiB of host memory is soon full; and a
    recurrent one.
    """
    folder = tmp_path_factory.mktemp("gguf")
    attention = make_tiny_gguf(folder / "tiny.gguf", layers=4, embd=128, kv_heads=4)
    return attention, make_tiny_mamba(folder / "mamba.gguf")


class History:
    """One life of an engine."""

    def __init__(self, models: tuple[Path, Path], seed: int, patch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)
        recurrent = self.chance.random() < RECURRENT_SHARE
        model = models[recurrent]
        self.seed, self.heard = seed, list[Heard]()
        self.wishes = Wishes(self.chance)
        self.lone = loaded(_lone(model))
        self.known: dict[tuple[TokenPrompt, int], Greedy] = {}
        self.rested = asyncio.Event()
        spec = _spec(model, self.chance)
        if spec.speculation == "draft" and recurrent:
            spec = replace(spec, speculation="off")
        meddler = random.Random(self.chance.random())
        self.world = World(spec, meddler, patch, failures=self.chance.random() < 0.3)

    async def live(self) -> None:
        self.world.open()
        try:
            async with asyncio.timeout(HISTORY_S):
                await self._ask_all()
            for heard in self.heard:
                await self._compare(heard)
            quiet(self.world, self._broken)
            await self._last_word()
        except (AssertionError, TimeoutError) as error:
            raise self._broken(f"{error!r}") from error
        finally:
            self.world.engine.close()
            self.lone.close()

    async def _ask_all(self) -> None:
        sleepers: list[asyncio.Task[None]] = []
        tasks: list[asyncio.Task[None]] = []
        for _ in range(REQUESTS):
            wish = self.wishes.draw()
            task = asyncio.create_task(self._one(wish))
            (sleepers if wish.sleeps else tasks).append(task)
            self.world.tasks.append(task)
            await self.world.pass_steps(self.chance.choice((0, 0, 1, 5, 20)), tasks)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        self.rested.set()
        ends += await asyncio.gather(*sleepers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _one(self, wish: Wish) -> None:
        heard = Heard(wish)
        self.heard.append(heard)
        try:
            async with aclosing(self.world.engine.generate(wish.prompt, wish.params)) as chunks:
                async for chunk in chunks:
                    heard.chunk(chunk)
                    if 0 <= wish.leaves_after <= sum(heard.tokens):
                        return
                    if wish.sleeps:
                        await self.rested.wait()
        except Fault as fault:
            self._refused(wish, fault)
        else:
            assert all(heard.ended), "every choice ends"
            if wish.plain:
                tokens = (one.chosen.token for one in heard.told[0])
                self.wishes.said.append((*wish.prompt.tokens, *tokens)[: CONTEXT_TOKENS - 1])

    def _refused(self, wish: Wish, fault: Fault) -> None:
        slow = fault.reason is Reason.SLOW_READER
        full = fault.reason is Reason.QUEUE_FULL
        crashed = fault.reason is Reason.ENGINE_CRASHED
        assert (
            (slow and (wish.sleeps or self.world.spec.buffer_tokens < CONTEXT_TOKENS))
            or (full and self.world.spec.waiting < REQUESTS)
            or (crashed and self.world.failed_steps)
        ), f"refused: {fault!r}"

    async def _compare(self, heard: Heard) -> None:
        if not heard.wish.plain:
            return
        for told in heard.told:
            if told:
                gaps = [one.top[0].logprob - one.top[1].logprob for one in told]
                alone = await self._alone(heard.wish.prompt, len(told))
                mine = Greedy([one.chosen.token for one in told], gaps, alone.usage)
                parted_at(mine, alone)

    async def _alone(self, prompt: TokenPrompt, tokens: int) -> Greedy:
        key = prompt, tokens
        if key not in self.known:
            self.known[key] = await greedy(self.lone, prompt, tokens)
        return self.known[key]

    async def _last_word(self) -> None:
        """All cells can be had again: one request fills the whole context, cell by cell."""
        self.world.tasks.clear()
        prompt = TokenPrompt((5,) * (CONTEXT_TOKENS - 20))
        await self._one(Wish(prompt, answer_of(0), False, -1, False))

    def _broken(self, rule: str) -> AssertionError:
        asked = "\n".join(str(heard.wish) for heard in self.heard)
        return AssertionError(f"{rule}\nseed {self.seed}: {self.world.spec}\n{asked}\n{rule}")


def _lone(model: Path) -> EngineSpec:
    return EngineSpec(model, CONTEXT_TOKENS, threads=1, prefix_cache_mib=0, idle_cache_tokens=0)


def _spec(model: Path, chance: random.Random) -> EngineSpec:
    return EngineSpec(
        model,
        CONTEXT_TOKENS,
        places=chance.choice((1, 2, 4, 4)),
        threads=1,
        batch_tokens=chance.choice((20, 60, 128)),
        ubatch_tokens=chance.choice((8, 60)),
        prefill_chunk_tokens=chance.choice((8, 32)),
        cache_tokens=chance.choice((0, 256, 320, 512)),
        idle_cache_tokens=chance.choice((0, 64, 512)),
        prefix_cache_mib=chance.choice((0, 1, 64)),
        speculation=chance.choice(("off", "lookup", "draft")),
        draft_path=model,  # which is mostly right
        cache_scope=chance.choice(("global", "key")),
        waiting=chance.choice((2, 64)),
        buffer_tokens=chance.choice((16, 4096)),
    )


@pytest.mark.parametrize("block", range(HISTORIES // 10))
async def test_every_request_gets_its_due_and_nothing_is_left(
    models: tuple[Path, Path], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(10 * block, 10 * block + 10):
        with monkeypatch.context() as patch:
            await History(models, seed, patch).live()
