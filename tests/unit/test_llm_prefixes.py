"""Who is kept where: idle in the cache, parked in host memory, or forgotten."""

from collections.abc import Collection
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.llm.core.prefixes import LEAST_TOKENS, Forget, Park, Prefixes, Reuse


class World:
    """A cache that does what it is told, with cells of its own for every sequence."""

    def __init__(self, **bounds: Any) -> None:
        self.held: dict[int, int] = {}
        limits: dict[str, Any] = {
            "idle_tokens": 100, "idle_sequences": 4, "parked_bytes": 1000
        } | bounds  # fmt: skip
        self.prefixes = Prefixes(freed_cells=self.freed, **limits)
        self.limits = limits
        self.done: list[str] = []

    def freed(self, sequences: Collection[int]) -> int:
        return sum(self.held[sequence] for sequence in sequences)

    def run(self, tokens: list[int], scope: str = "", sequence: int | None = None) -> int:
        sequence = (
            next(i for i in range(99) if i not in self.held) if sequence is None else sequence
        )
        self.held[sequence] = len(tokens)
        return self.prefixes.running(scope, tokens, sequence)

    def end(self, key: int, tokens: list[int]) -> None:
        self.perform(self.prefixes.ended(key, tokens))
        self.perform(self.prefixes.fit_cache())

    def perform(self, effects: list[Park | Forget]) -> None:
        for effect in effects:
            size = self.held.pop(effect.sequence, 0) if effect.sequence >= 0 else 0
            self.done.append(f"{type(effect).__name__.lower()} {effect.key}")
            if isinstance(effect, Park):
                self.perform(self.prefixes.parked_now(effect.key, size))


def text(start: int, tokens: int) -> list[int]:
    return list(range(start, start + tokens))


def test_a_finished_sequence_is_reused_where_it_is() -> None:
    world = World()
    key = world.run(text(0, 40), sequence=7)
    world.end(key, text(0, 50))
    assert world.prefixes.find("", [*text(0, 45), 999]) == Reuse(key, 45, 7)


def test_a_running_prompt_is_shared_and_one_token_is_left_to_compute() -> None:
    world = World()
    key = world.run(text(0, 40), sequence=3)
    assert world.prefixes.find("", text(0, 40)) == Reuse(key, 39, 3)


def test_short_prefixes_are_not_worth_it() -> None:
    world = World()
    key = world.run(text(0, LEAST_TOKENS))
    world.end(key, text(0, LEAST_TOKENS - 1))
    assert world.done == [f"forget {key}"]
    world.run(text(0, 40))
    assert world.prefixes.find("", [*text(0, LEAST_TOKENS - 1), 999]) is None


def test_scopes_do_not_see_each_other() -> None:
    world = World()
    world.run(text(0, 40), scope="alice")
    assert world.prefixes.find("bob", text(0, 40)) is None
    assert world.prefixes.find("", text(0, 40)) is None
    assert world.prefixes.find("alice", text(0, 40)) is not None


def test_the_next_turn_takes_the_place_of_the_one_before() -> None:
    world = World()
    first = world.run(text(0, 30))
    world.end(first, text(0, 35))
    then = world.run(text(0, 50))
    world.end(then, text(0, 60))
    assert world.done == [f"forget {first}"]
    assert world.prefixes.idle == [then]


def test_the_least_recently_used_is_parked_then_forgotten() -> None:
    world = World(idle_tokens=100, parked_bytes=100)
    keys = []
    for start in (0, 1000, 2000, 3000):
        keys.append(world.run(text(start, 60)))
        world.end(keys[-1], text(start, 60))
    assert world.done == [
        f"park {keys[0]}", f"park {keys[1]}", f"forget {keys[0]}",
        f"park {keys[2]}", f"forget {keys[1]}",
    ]  # fmt: skip
    assert (world.prefixes.idle, world.prefixes.parked) == ([keys[3]], [keys[2]])
    assert world.prefixes.find("", text(2000, 60)) == Reuse(keys[2], 59, -1)


def test_what_is_used_is_kept() -> None:
    world = World(idle_tokens=120)
    keys = []
    for start in (0, 1000):
        keys.append(world.run(text(start, 60)))
        world.end(keys[-1], text(start, 60))
    world.prefixes.find("", text(0, 60))
    world.end(world.run(text(2000, 60)), text(2000, 60))
    assert world.done == [f"park {keys[1]}"]


def test_a_parked_prefix_must_save_much_more_than_one_at_hand() -> None:
    world = World(idle_tokens=0)
    parked = world.run(text(0, 80))
    world.end(parked, text(0, 80))
    at_hand = world.run([*text(0, 50), *text(500, 10)], sequence=5)
    assert world.prefixes.find("", text(0, 58)) == Reuse(at_hand, 50, 5)
    assert world.prefixes.find("", text(0, 59)) == Reuse(parked, 58, -1)
    longer = World(idle_tokens=0)
    parked = longer.run(text(0, 90))
    longer.end(parked, text(0, 90))
    longer.run([*text(0, 50), *text(500, 10)], sequence=5)
    assert longer.prefixes.find("", text(0, 91)) == Reuse(parked, 90, -1)


def test_without_host_memory_nothing_is_parked() -> None:
    world = World(idle_tokens=0, parked_bytes=0)
    key = world.run(text(0, 40))
    world.end(key, text(0, 40))
    assert world.done == [f"forget {key}"]


def test_parked_requests_go_before_parked_prefixes() -> None:
    world = World(idle_tokens=0, parked_bytes=100)
    key = world.run(text(0, 60))
    world.end(key, text(0, 60))
    fits, effects = world.prefixes.reserve(80)
    assert (fits, effects) == (True, [Forget(key, -1)])
    assert world.prefixes.reserve(30) == (False, [])
    world.prefixes.release(80)
    assert world.prefixes.reserve(30) == (True, [])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 70), st.integers(0, 60)), max_size=30),
    st.integers(0, 150),
    st.integers(0, 300),
)
def test_the_bounds_hold_whatever_comes(
    requests: list[tuple[int, int, int]], idle_tokens: int, parked_bytes: int
) -> None:
    world = World(idle_tokens=idle_tokens, parked_bytes=parked_bytes, idle_sequences=3)
    for kind, prompt, answer in requests:
        tokens = [kind] * 20 + text(100 * kind, prompt)
        if found := world.prefixes.find("", tokens):
            assert 0 < found.tokens < len(tokens)
        key = world.run(tokens)
        world.end(key, tokens + text(5000, answer))
        idle = world.prefixes.idle
        assert len(idle) <= 3
        assert sum(world.held.values()) <= idle_tokens
        assert world.prefixes.parked_bytes <= parked_bytes
