"""The world of `cohabit simulate`: what it performs, what it counts, what it draws."""

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from cli.console import Refused
from cli.simulation import synth, trace
from cli.simulation.card import Card
from cli.simulation.columns import Run, Scale, most_waiting, phase_runs
from cli.simulation.fifo import Fifo
from cli.simulation.figures import figures, percentile
from cli.simulation.kinds import Kind
from cli.simulation.picture import draw
from cli.simulation.record import End, Fate, Phase, Record, Twice
from cli.simulation.report import as_json
from cli.simulation.setup import CardSpec, Profile, Setup, Tenant
from cli.simulation.trace import Line
from cli.simulation.world import World
from services.broker.core import Floors, LeaseKind
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.settings import Settings
from services.scheduler.core.values import Lane, Tier


def lane_of(name: str) -> Lane:
    return Lane(name, 1, wait_ms=60_000, max_run_ms=20_000)


def setup_of(*profiles: Profile, total_mib: int = 1_000, tenants: tuple[Tenant, ...] = ()) -> Setup:
    card = CardSpec(total_mib, Floors(0, 0, 0, 0), tenants=tenants)
    return Setup({p.key: p for p in profiles}, card, Settings(permits=2, lane_of=lane_of))


def model(key: str, resident_mib: int = 600, peak_mib: int = 0, family: str = "") -> Profile:
    return Profile(
        key,
        "chat",
        resident_mib,
        load_ms=4_000,
        unload_ms=500,
        work_ms=1_000,
        peak_mib=peak_mib,
        family=family,
        tokens_per_s=100.0,
        prefill_tokens_per_s=1_000.0,
    )


def replay(setup: Setup, *lines: Line) -> Record:
    return World(setup, SchedulerCore(setup.settings)).replay(list(lines))


def test_a_cold_model_is_loaded_once_and_serves_who_comes_later_at_once() -> None:
    record = replay(setup_of(model("a")), Line(0, "a"), Line(10, "a"))

    first, second = record.fates
    assert first.waited_ms == pytest.approx(4_000, abs=20)
    assert second.waited_ms == 0
    assert [fate.end for fate in record.fates] == [End.DONE, End.DONE]
    assert [load.model for load in record.loads] == ["a"]


def test_two_that_do_not_fit_together_swap_and_memory_is_never_exceeded() -> None:
    record = replay(setup_of(model("a"), model("b")), Line(0, "a"), Line(20, "b"))

    assert [load.model for load in record.loads] == ["a", "b"]
    assert [key for _, key in record.evictions] == ["a"]
    assert record.out_of_memory == 0
    assert max(resident for _, resident, _, _ in record.memory) == 600


def test_a_peak_is_held_while_its_request_runs() -> None:
    record = replay(setup_of(model("a", peak_mib=300)), Line(0, "a", work_s=3))

    held = [at for at, _, transient, _ in record.memory if transient == 300]
    back = [at for at, _, transient, _ in record.memory if at > held[0] and transient == 0]
    assert back[0] - held[0] == pytest.approx(3_000, abs=10)


def test_what_can_never_fit_is_refused() -> None:
    record = replay(setup_of(model("a", resident_mib=2_000)), Line(0, "a"))
    assert (record.fates[0].end, record.fates[0].why) == (End.REFUSED, "never_fits")


def test_a_caller_without_patience_gives_up_and_is_counted_once() -> None:
    record = replay(setup_of(model("a")), Line(0, "a", patience_s=1), Line(0, "a"))
    assert [fate.end for fate in record.fates] == [End.GAVE_UP, End.DONE]
    assert record.fates[0].ended_ms == 1_000


def test_a_run_beyond_its_lane_is_cut_off() -> None:
    record = replay(setup_of(model("a")), Line(0, "a", work_s=50))
    fate = record.fates[0]
    assert (fate.end, fate.why) == (End.CUT_OFF, "run_too_long")
    assert fate.ended_ms - (fate.granted_ms or 0) == pytest.approx(20_000, abs=20)


def test_foreign_tenants_take_what_is_free_and_a_load_waits_for_their_end() -> None:
    tenants = (Tenant(1_000, 800), Tenant(30_000, 0))
    record = replay(setup_of(model("a"), tenants=tenants), Line(5, "a"))

    assert record.out_of_memory == 0
    assert record.fates[0].end is End.DONE
    assert record.loads[0].began_ms >= 30_000


def test_taking_more_than_there_is_counts_as_out_of_memory_whatever_the_ledger_said() -> None:
    card = Card(CardSpec(1_000, Floors(0, 0, 0, 0)))
    card.take(LeaseKind.RESIDENT, 900)
    assert card.out_of_memory == 0
    card.take(LeaseKind.TRANSIENT, 101)
    assert card.out_of_memory == 1


def test_a_family_is_served_by_one_of_its_members() -> None:
    record = replay(setup_of(model("a", family="f"), model("b", 300, family="f")), Line(0, "f"))
    assert record.fates[0].served_by in {"a", "b"}


def test_tokens_take_the_time_that_the_profile_says() -> None:
    assert model("a").run_ms(Line(0, "a", tokens=(500, 200))) == 2_500
    assert model("a").run_ms(Line(0, "a", tokens=(500, 200), work_s=1.5)) == 1_500
    assert model("a").run_ms(Line(0, "a")) == 1_000


def test_a_replay_is_the_same_each_time() -> None:
    setup = setup_of(model("a"), model("b"), model("c", 300))
    lines = synth.trace(Kind.BURSTY, setup, synth.Wish(200, 0.5, seed=3))
    first, again = replay(setup, *lines), replay(setup, *lines)
    assert first.fates == again.fates
    assert first.phases == again.phases


@pytest.mark.parametrize("kind", list(Kind))
def test_every_request_ends_once_under_either_policy(kind: Kind) -> None:
    setup = setup_of(model("a"), model("b", peak_mib=200), model("c", 300))
    lines = synth.trace(kind, setup, synth.Wish(300, 1, seed=5))
    for policy in (SchedulerCore(setup.settings), Fifo(setup.settings)):
        world = World(setup, policy)
        record = world.replay(lines)
        assert all(fate.end is not None for fate in record.fates)
        assert not world.calls
        assert policy.in_use == 0
        assert record.out_of_memory == 0
        assert world.card.use.transient_mib == 0
        assert world.card.leases == sum(len(each.instances) for each in world.models.values())


def test_fifo_lets_nobody_pass() -> None:
    setup = setup_of(model("a"), model("b"))
    lines = [Line(0, "a"), Line(8, "b"), Line(8.1, "a", tier="paid")]
    record = World(setup, Fifo(setup.settings)).replay(lines)
    granted = [fate.granted_ms or 0 for fate in record.fates]
    assert granted == sorted(granted)
    assert [load.model for load in record.loads] == ["a", "b", "a"]


def test_ending_or_granting_twice_is_a_bug() -> None:
    record = Record()
    fate = Fate("a", Tier.FREE, "", 0)
    record.arrived(fate)
    record.granted(1, fate, "a")
    with pytest.raises(Twice):
        record.granted(2, fate, "a")
    record.ended(3, fate, End.DONE)
    with pytest.raises(Twice):
        record.ended(4, fate, End.DONE)


# -- traces --------------------------------------------------------------------------------------


def test_a_trace_is_read_in_order_of_time_and_written_as_it_was() -> None:
    text = b'{"t": 2, "model": "a", "tokens": [1, 2]}\n\n{"t": 1, "model": "a", "tier": "paid"}\n'
    lines = trace.parse(text, {"a"}, "t")
    assert [line.t for line in lines] == [1, 2]
    assert trace.parse(trace.dump(lines), {"a"}, "t") == lines


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"t": 1}', "`model`"),
        (b'{"t": -1, "model": "a"}', "$.t"),
        (b'{"t": 1, "model": "a", "tier": "gold"}', "gold"),
        (b'{"t": 1, "model": "a", "tokens": [1]}', "$.tokens"),
        (b'{"t": 1, "model": "a", "speed": 1}', "speed"),
        (b'{"t": 1, "model": "b"}', "no model 'b'; there are: a"),
        (b"\xff", "trace.jsonl:2"),
        (b"[", "trace.jsonl:2"),
    ],
)
def test_a_wrong_line_is_named(line: bytes, said: str) -> None:
    with pytest.raises(Refused, match=r"trace\.jsonl:2: ") as refused:
        trace.parse(b'{"t": 0, "model": "a"}\n' + line, {"a"}, "trace.jsonl")
    assert said in str(refused.value)


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(Refused, match="no request"):
        trace.parse(b"\n", {"a"}, "t")


@pytest.mark.parametrize("kind", list(Kind))
def test_traces_follow_from_their_seed(kind: Kind) -> None:
    setup = setup_of(model("a"), model("b"), model("c"))
    wish = synth.Wish(100, 2, seed=7)
    lines = synth.trace(kind, setup, wish)
    assert lines == synth.trace(kind, setup, wish)
    assert lines != synth.trace(kind, setup, synth.Wish(100, 2, seed=8))
    assert len(lines) == 100
    assert all(0 <= a.t <= b.t <= 2 * 3600 for a, b in pairwise(lines))


def test_adversarial_traces_ask_for_what_does_not_fit_in_turn() -> None:
    setup = setup_of(model("a"), model("b", 700), model("c", 100))
    lines = synth.trace(Kind.ADVERSARIAL, setup, synth.Wish(10, 1))
    assert all(one.model != next_.model for one, next_ in pairwise(lines))
    assert {line.model for line in lines} == {"a", "b"}


# -- what is shown -------------------------------------------------------------------------------


def test_columns_merge_what_is_narrower_than_they_are() -> None:
    scale = Scale(10, 1_000)
    states = [(0, Phase.AWAY), (200, Phase.LOADING), (215, Phase.BUSY), (501, Phase.AWAY)]
    assert phase_runs(scale, states) == [Run(2, 1, Phase.LOADING), Run(3, 2, Phase.BUSY)]


def test_a_strip_shows_the_most_that_waited() -> None:
    changes = [(100, Tier.PAID, 1), (110, Tier.PAID, 5), (120, Tier.PAID, 0), (300, Tier.SUB, 9)]
    assert most_waiting(Scale(10, 1_000), changes, Tier.PAID) == [0, 5, 0, 0, 0, 0, 0, 0, 0, 0]


def test_the_picture_is_xml_of_bounded_size_with_a_row_for_each_model() -> None:
    profiles = [model(f"m{number}<&>\x07", 300) for number in range(36)]
    setup = setup_of(*profiles)
    lines = synth.trace(Kind.STEADY, setup, synth.Wish(500, 24))
    picture = draw("a & b", setup, replay(setup, *lines))

    root = ET.fromstring(picture)
    said = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {f"m{number}<&>" for number in range(36)} <= set(said)
    assert len(picture) < 2_000_000


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([1], 0.5, 1), ([1, 2], 0.5, 1), ([1, 2, 3], 0.5, 2), (list(range(1, 101)), 0.99, 99)],
)
def test_percentiles_are_of_nearest_rank(values: list[int], share: float, expected: int) -> None:
    assert percentile(values, share) == expected


def test_figures_sum_a_replay_up() -> None:
    setup = setup_of(model("a"))
    record = replay(setup, Line(0, "a", tier="paid", key="ann"), Line(6, "a", work_s=2))
    sums = figures("cohabit", setup, record, 0.5)

    assert (sums.requests, sums.loads, sums.cold_loads) == (2, 1, 1)
    assert [waits.name for waits in sums.tiers] == ["paid", "free"]
    assert sums.tiers[1].worst_s == 0
    assert 0 < sums.permits_used < 1
    # 150, 300, 450 MiB for a second each while it loads, then 600 to the end at 8 s; of 1,000.
    assert sums.memory_used == pytest.approx(0.412, abs=0.002)
    assert '"policy": "cohabit"' in as_json([sums])
