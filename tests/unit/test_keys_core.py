"""What keys do is counted as a deliberately dumb oracle counts it."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.keys.core import Bounds, Entered, Limits, Refused


@dataclass
class Oracle:
    """Remembers every request there was, and looks at every stretch of time up to now."""

    entered: list[tuple[str, float]] = field(default_factory=list)
    running: list[str] = field(default_factory=list)

    def may(self, name: str, bounds: Bounds, now_s: float) -> bool:
        if bounds.concurrent is not None and self.running.count(name) >= bounds.concurrent:
            return False
        if (minute := bounds.requests_per_minute) is None:
            return True
        mine = [at for who, at in self.entered if who == name] + [now_s]
        # From any of them on: no more than a full bucket and what has been poured in since.
        return all(
            len([at for at in mine if at >= begin]) <= minute + (now_s - begin) * minute / 60
            for begin in mine
        )

    def enter(self, name: str, now_s: float) -> None:
        self.entered.append((name, now_s))
        self.running.append(name)


# Of minutes that 60 is a multiple of, or that are multiples of 60: fractions that are exact.
BOUNDS = st.builds(
    Bounds,
    st.none() | st.sampled_from([1, 2, 3, 6, 60, 120]),
    st.none() | st.integers(1, 3),
)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave"]), st.sampled_from(["a", "b"]), st.integers(0, 70)),
    max_size=60,
)


@settings(deadline=None)  # the machine may be busy
@given(st.fixed_dictionaries({"a": BOUNDS, "b": BOUNDS}), EVENTS)
def test_a_request_enters_when_a_dumb_count_lets_it(
    bounds: dict[str, Bounds], events: list[tuple[str, str, int]]
) -> None:
    limits, oracle, now_s = Limits(), Oracle(), 1000.0
    for what, name, later_s in events:
        now_s += later_s
        if what == "leave":
            if name in oracle.running:
                oracle.running.remove(name)
                limits.leave(name)
            continue
        said = limits.enter(name, bounds[name], now_s)
        assert isinstance(said, Entered) == oracle.may(name, bounds[name], now_s), said
        if isinstance(said, Entered):
            oracle.enter(name, now_s)
        assert len(limits) <= 2


@settings(deadline=None)  # the machine may be busy
@given(st.integers(1, 1000), st.integers(1, 2000), st.floats(0, 30))
def test_who_waits_as_long_as_told_is_served(minute: int, asked: int, pause_s: float) -> None:
    limits, bounds, now_s = Limits(), Bounds(minute), 5.0
    for _ in range(asked):
        said = limits.enter("a", bounds, now_s)
        if isinstance(said, Refused):
            assert 0 < said.retry_after_s <= 60 / minute + 1e-6
            now_s += said.retry_after_s
            assert isinstance(limits.enter("a", bounds, now_s), Entered)
            now_s += pause_s


def test_a_refused_request_takes_nothing() -> None:
    limits, bounds = Limits(), Bounds(2, 1)
    assert limits.enter("a", bounds, 0.0) == Entered(1, 30.0)
    for _ in range(5):
        said = limits.enter("a", bounds, 0.0)
        assert isinstance(said, Refused)
        assert said.of == "concurrent"
    limits.leave("a")
    assert limits.enter("a", bounds, 0.0) == Entered(0, 60.0)
    limits.leave("a")
    assert limits.enter("a", bounds, 0.0) == Refused("minute", 30.0, 60.0)


def test_new_bounds_hold_from_the_next_request_on() -> None:
    limits = Limits()
    for _ in range(5):
        limits.enter("a", Bounds(100, 100), 0.0)
    assert limits.enter("a", Bounds(100, 5), 0.0) == Refused("concurrent", 1.0, 3.0)
    limits.leave("a")
    assert limits.enter("a", Bounds(2, 5), 0.0) == Entered(1, 30.0)


def test_keys_that_do_nothing_are_forgotten() -> None:
    limits = Limits()
    for n in range(1000):
        limits.enter(f"k{n}", Bounds(10), 0.0)
        if n:
            limits.leave(f"k{n}")
    limits.enter("other", Bounds(10), 60.0)
    assert len(limits) == 2  # it, and the one that is not over
    limits.leave("k0")
    limits.enter("other", Bounds(10), 121.0)
    assert len(limits) == 1


def test_a_key_that_was_busy_a_moment_ago_is_not_forgotten() -> None:
    limits = Limits()
    limits.enter("other", Bounds(10), 0.0)
    assert limits.enter("a", Bounds(1), 59.0) == Entered(0, 60.0)
    limits.leave("a")
    limits.enter("other", Bounds(10), 60.0)  # looks for those to forget
    assert limits.enter("a", Bounds(1), 61.0) == Refused("minute", 58.0, 58.0)
