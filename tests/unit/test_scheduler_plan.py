"""The residency planner: what it chooses, against all subsets, and what it says."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core import eviction
from services.scheduler.core.plan import Plan, Resident, Wanted, plan
from services.scheduler.core.sets import Rules, parse_sets


def resident(
    key: str,
    mib: int,
    peak: int = 0,
    *,
    cost: float = 1.0,
    idle_s: float = 60.0,
    reload_s: float = 10.0,
    bar: str = "",
) -> Resident:
    return Resident(key, mib, peak, cost, round(idle_s * 1_000), round(reload_s * 1_000), bar)


def leaving(found: Plan) -> list[str]:
    return [one.key for one in found.evictions]


def wants(mib: int, *residents: Resident, headroom: int = 0, peak: int = 0) -> list[str]:
    found = plan(Wanted("new", mib, peak), residents, headroom, None)
    assert found.feasible
    return leaving(found)


def test_lateness_halves_after_a_minute_and_never_ends() -> None:
    assert resident("a", 1, idle_s=0).lateness == 1.0
    assert resident("a", 1, idle_s=60).lateness == 0.5
    assert resident("a", 1, idle_s=540).lateness == 0.1
    year = resident("a", 1, idle_s=365 * 86_400, reload_s=0.001)
    assert year.lateness > 0
    assert year.weight >= 1


def test_each_factor_weighs() -> None:
    one = resident("one", 1_000)
    assert wants(1_000, one, resident("two", 1_000, cost=0.9)) == ["two"]
    assert wants(1_000, one, resident("two", 1_000, idle_s=61)) == ["two"]
    assert wants(1_000, one, resident("two", 1_000, reload_s=9)) == ["two"]
    assert wants(1_000, one, resident("two", 1_000, reload_s=11)) == ["one"]


def test_nobody_leaves_where_there_is_room() -> None:
    found = plan(Wanted("new", 1_000, 500), [resident("a", 900, 500)], 1_500, None)
    assert found == Plan((), True, 1_500, 1_500, found.explanation)
    assert found.explanation.endswith("Nobody has to leave: there is room.")


def test_room_is_kept_for_the_largest_peak_of_those_who_stay() -> None:
    spiky = resident("spiky", 1_000, 6_700, reload_s=30)
    calm = resident("calm", 2_000, 100)
    assert wants(1_000, calm, headroom=1_100) == []
    assert wants(1_000, calm, spiky, headroom=7_700) == []
    assert wants(1_000, calm, spiky, headroom=7_699) == ["calm"]
    assert wants(1_000, spiky, headroom=1_000, peak=1_000) == ["spiky"]


def test_the_peak_of_one_who_may_not_leave_stays() -> None:
    barred = resident("barred", 1_000, 6_700, bar="is pinned")
    found = plan(Wanted("new", 1_000, 0), [barred, resident("a", 1_000)], 6_700, None)
    assert leaving(found) == ["a"]
    assert found.needed_mib == 7_700


def test_one_heavy_model_may_be_cheaper_than_the_light_ones_it_would_take() -> None:
    small = [resident(f"small{number}", 1_000, reload_s=4) for number in range(3)]
    assert wants(3_000, *small, resident("big", 3_000, reload_s=11)) == ["big"]
    assert wants(3_000, *small, resident("big", 3_000, reload_s=13)) == [
        "small0",
        "small1",
        "small2",
    ]


def test_ties_go_to_fewer_then_to_the_least_recently_used_then_by_name() -> None:
    halves = [resident("a", 500, reload_s=5), resident("b", 500, reload_s=5)]
    assert wants(1_000, *halves, resident("c", 1_000)) == ["c"]
    old = resident("z", 500, cost=2, idle_s=180)
    new = resident("a", 500, cost=1, idle_s=60)
    assert old.weight == new.weight
    assert wants(500, new, old) == ["z"]
    assert wants(500, resident("b", 500), resident("a", 500)) == ["a"]


def test_a_tie_is_sought_after_a_first_answer_too() -> None:
    roomy = resident("roomy", 1_100, cost=1, idle_s=60)
    old = resident("old", 1_000, cost=2, idle_s=180)
    assert wants(1_000, roomy, old) == ["old"]


def test_a_tie_is_sought_in_every_allowed_set() -> None:
    """One of six may stay, and all weigh the same: the one used last stays."""
    rules = parse_sets({"s": "new & (a | b | c | d | e | f)"}, ["new", *"abcdef"])
    residents = [
        resident(key, 100, cost=1 + minutes, idle_s=60 * minutes)
        for minutes, key in enumerate("abcdef", 1)
    ]
    found = plan(Wanted("new", 100, 0), residents, 1_000, rules)
    assert sorted(leaving(found)) == ["b", "c", "d", "e", "f"]


def test_cheaper_memory_may_stay_where_dearer_has_the_peak() -> None:
    """The greedy answer is cheap, spiky, fair: 18 to 17.2."""
    cheap = resident("cheap", 1_000, reload_s=5)
    spiky = resident("spiky", 1_000, 5_000, reload_s=6)
    fair = resident("fair", 1_000, reload_s=7)
    dear = resident("dear", 1_500, reload_s=11.2)
    assert wants(2_500, cheap, spiky, fair, dear) == ["spiky", "dear"]


def test_an_eviction_that_costs_nothing_goes_first_and_yet_not_in_vain() -> None:
    free = [resident("a", 800, cost=0, idle_s=0), resident("b", 800, cost=0, idle_s=0)]
    dear = resident("c", 1_600, reload_s=0.01)
    assert wants(1_600, *free, dear) == ["a", "b"]
    assert wants(800, *free, dear) == ["a"]


def test_memory_on_its_way_counts_as_coming() -> None:
    others = [resident("a", 1_000)]
    assert leaving(plan(Wanted("new", 1_000, 0), others, 400, None, leaving_mib=600)) == []
    found = plan(Wanted("new", 1_000, 0), others, 400, None, leaving_mib=599)
    assert leaving(found) == ["a"]
    assert "400 MiB are there, 599 MiB are on their way; 1 MiB are missing." in found.explanation


def test_a_request_of_a_resident_model_needs_its_own_peak_alone() -> None:
    mine = resident("mine", 5_000, 4_000, cost=0)
    other = resident("other", 2_000, 9_000)
    rules = parse_sets({"s": "mine | other"}, ["mine", "other"])
    needs = Wanted("mine", 4_000, 4_000, transient=True)
    assert leaving(plan(needs, [mine, other], 4_000, rules)) == []
    assert leaving(plan(needs, [mine, other], 3_000, rules)) == ["other"]
    found = plan(needs, [mine, other], 1_000, rules)
    assert not found.feasible
    assert "even without other, 1,000 MiB would be missing" in found.explanation


def test_another_instance_of_a_resident_model_does_not_evict_it() -> None:
    mine = resident("mine", 5_000, 4_000, cost=0)
    other = resident("other", 2_000)
    found = plan(Wanted("mine", 5_000, 1_000), [mine, other], 7_000, None)
    assert leaving(found) == ["other"]
    assert found.needed_mib == 9_000


def test_who_may_not_live_beside_the_wanted_one_goes_even_where_there_is_room() -> None:
    rules = parse_sets({"s": "new & (a | b) | c"}, ["new", "a", "b", "c"])
    residents = [resident("a", 10, reload_s=3), resident("b", 10), resident("c", 10)]
    found = plan(Wanted("new", 100, 0), residents, 1_000, rules)
    assert leaving(found) == ["a", "c"]
    assert [one.why for one in found.evictions] == [
        "the sets do not let it live beside new and who stays"
    ] * 2


def test_the_sets_may_be_kept_by_a_dearer_choice_where_memory_asks_for_it() -> None:
    rules = parse_sets({"s": "new & (a | b)"}, ["new", "a", "b"])
    residents = [resident("a", 100, reload_s=3), resident("b", 900)]
    assert leaving(plan(Wanted("new", 500, 0), residents, 400, rules)) == ["a"]
    assert leaving(plan(Wanted("new", 500, 0), residents, 399, rules)) == ["b"]


def test_what_bars_a_plan_is_said() -> None:
    pinned = resident("coder", 1_000, bar="is pinned")
    busy = resident("flux", 1_000, bar="runs 2 requests of tier paid")
    found = plan(Wanted("new", 500, 0), [busy, pinned], 400, None)
    assert (found.feasible, found.evictions) == (False, ())
    assert found.explanation.splitlines()[-1] == (
        "Nothing can leave: coder is pinned; flux runs 2 requests of tier paid."
    )
    rules = parse_sets({"s": "new | coder"}, ["new", "coder"])
    found = plan(Wanted("new", 500, 0), [resident("a", 9), pinned], 9_000, rules)
    assert not found.feasible
    assert found.explanation.splitlines()[-1] == (
        "Nobody leaves: the sets do not let new live beside coder (which is pinned)."
    )
    found = plan(Wanted("new", 5_000, 0), [resident("a", 9), pinned], 0, None)
    assert found.explanation.splitlines()[-1] == (
        "Nobody leaves: even without a, 4,991 MiB would be missing; coder is pinned."
    )
    found = plan(Wanted("new", 500, 0), [], 400, None)
    assert found.explanation.endswith("Nothing can leave: nobody else is resident.")


def test_the_explanation_says_what_was_weighed() -> None:
    residents = [
        resident("whisper", 3_000, 500, idle_s=120, reload_s=4),
        resident("coder", 16_000, 4_000, cost=2, idle_s=5, reload_s=20),
        resident("flux", 9_000, 3_000, idle_s=0, reload_s=8, bar="runs 2 requests of tier paid"),
        resident("tts", 1_000, 300, idle_s=600, reload_s=2),
    ]
    found = plan(Wanted("vision", 12_000, 1_000), residents, 2_000, None, leaving_mib=500)
    assert [(one.key, one.freed_mib, one.why) for one in found.evictions] == [
        ("coder", 16_000, "frees 16,000 MiB at a weight of 36.9")
    ]
    assert found.explanation.splitlines() == [
        (
            "vision needs 15,000 MiB: 12,000 for itself and 3,000 for the largest peak beside it."
            " 2,000 MiB are there, 500 MiB are on their way; 12,500 MiB are missing."
        ),
        "  model    frees MiB  peak MiB  cost x lateness x reload = weight",
        "  coder       16,000     4,000            2 x 0.923 x 20 s = 36.9  leaves",
        (
            "  tts          1,000       300           1 x 0.0909 x 2 s = 0.182"
            "  stays: alone it would not do"
        ),
        (
            "  whisper      3,000       500             1 x 0.333 x 4 s = 1.33"
            "  stays: alone it would not do"
        ),
        (
            "  flux         9,000     3,000                    1 x 1 x 8 s = 8"
            "  runs 2 requests of tier paid"
        ),
        "coder leaves, at a weight of 36.9: no lighter one would do.",
    ]


MODELS = "abcdefgh"
SETS = [
    {},
    {"s": "new & (a | b) & (c | d | e)"},
    {"s": "(new | a) & b & (c | d)", "t": "new & (e & f | g & h | a)"},
    {"s": "new", "t": "a & b"},
    {"s": "new & a & b & c & d | new & e & f & g & h"},
]


@st.composite
def houses(draw: st.DrawFn, most: int = 8) -> list[Resident]:
    few = st.sampled_from([0, 1, 2, 3, 5, 8])
    return [
        Resident(
            key,
            100 * draw(few),
            100 * draw(few),
            draw(st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0])),
            60_000 * draw(few),
            1_000 * draw(few),
            draw(st.sampled_from(["", "", "", "is pinned"])),
        )
        for key in MODELS[: draw(st.integers(0, most))]
    ]


def brute(
    wanted: Wanted, residents: list[Resident], there_mib: int, rules: Rules
) -> tuple[Resident, ...] | None:
    """The best of all subsets, by the words of the rule."""
    may_leave = [one for one in residents if not one.bar and one.key != wanted.key]

    def does(gone: tuple[Resident, ...]) -> bool:
        stays = [one for one in residents if one not in gone]
        freed = sum(one.resident_mib for one in gone)
        if wanted.transient:
            return freed + there_mib >= wanted.resident_mib
        peak = max([wanted.peak_mib, *(one.peak_mib for one in stays)])
        fits = freed + there_mib >= wanted.resident_mib + peak
        return fits and rules.allows([wanted.key, *(one.key for one in stays)])

    def worth(gone: tuple[Resident, ...]) -> tuple[int, int, list[int], list[str]]:
        idle = sorted(-one.idle_ms for one in gone)
        return sum(one.weight for one in gone), len(gone), idle, sorted(one.key for one in gone)

    subsets = (some for size in range(9) for some in combinations(may_leave, size))
    return min(filter(does, subsets), key=worth, default=None)


@given(
    houses(),
    st.integers(0, 25),
    st.integers(0, 8),
    st.integers(-2, 10),
    st.sampled_from(SETS),
    st.sampled_from(["new", "a", "a transient"]),
)
def test_it_chooses_as_trying_all_subsets_does(
    residents: list[Resident],
    mib: int,
    peak: int,
    there: int,
    texts: dict[str, str],
    name: str,
) -> None:
    rules = parse_sets(texts, ["new", *MODELS])
    wanted = Wanted(name.split(maxsplit=1)[0], 100 * mib, 100 * peak, transient="transient" in name)
    found = plan(wanted, residents, 100 * there - 150, rules, leaving_mib=150)
    best = brute(wanted, residents, 100 * there, rules)
    assert found.feasible is (best is not None)
    assert set(leaving(found)) == {one.key for one in best or ()}
    if best is not None:
        freed = sum(one.freed_mib for one in found.evictions)
        assert freed + 100 * there >= found.needed_mib
    assert plan(wanted, residents[::-1], 100 * there - 150, rules, leaving_mib=150) == found


@given(houses(), st.integers(0, 30), st.integers(0, 10), st.sampled_from(SETS))
def test_beyond_the_exact_search_there_is_room_and_nobody_leaves_in_vain(
    residents: list[Resident], mib: int, there: int, texts: dict[str, str]
) -> None:
    """The bounds are lowered so that eight residents are too many: the first answer is the last."""
    rules = parse_sets(texts, ["new", *MODELS])
    wanted = Wanted("new", 100 * mib, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eviction, "EXACT", 0)
        patch.setattr(eviction, "STEPS", 0)
        found = plan(wanted, residents, 100 * there, rules)
    best = brute(wanted, residents, 100 * there, rules)
    assert found.feasible is (best is not None)
    if best is None:
        return
    gone = {one.key for one in found.evictions}
    assert not gone & {one.key for one in residents if one.bar}
    assert (
        brute(
            wanted,
            [one for one in residents if one.key not in gone],
            _left(gone, residents, there),
            rules,
        )
        == ()
    )
    for back in gone:
        less = gone - {back}
        left = [one for one in residents if one.key not in less]
        assert brute(wanted, left, _left(less, residents, there), rules) != ()


def _left(gone: set[str], residents: list[Resident], there: int) -> int:
    return 100 * there + sum(one.resident_mib for one in residents if one.key in gone)


def search_of(residents: list[Resident], mib: int, rules: Rules | None = None) -> eviction.Search:
    return eviction.Search(eviction.asked(Wanted("new", mib, 0), residents, 0, rules))


def test_equal_models_are_not_tried_in_every_order() -> None:
    """16 alike, of which 8 must go: 12,870 ways, one is taken."""
    search = search_of([resident(f"m{number:02}", 1_000) for number in range(16)], 8_000)
    assert search.answer() is not None
    assert search.steps < 100


def test_twelve_alternatives_joined_twelve_ways_take_few_steps() -> None:
    groups = [[f"m{group}-{number}" for number in range(12)] for group in range(12)]
    text = " & ".join(f"({' | '.join(group)})" for group in groups)
    names = [key for group in groups for key in group]
    rules = parse_sets({"all": f"new & {text}"}, ["new", *names])
    residents = [
        resident(key, 1_000 + 370 * place, idle_s=11 * place, reload_s=3 + place % 5)
        for place, key in enumerate([key for group in groups for key in group[:3]][:14])
    ]
    search = search_of(residents, 20_000, rules)
    assert search.answer() is not None
    assert not search.cut
    assert search.steps < 2_000


def test_with_many_the_search_ends_at_its_bound_and_says_so() -> None:
    """Weights in proportion to sizes, all different: the hardest there is."""
    residents = [
        resident(
            f"m{number:02}", 500 + 173 * number**2 % 8_009, reload_s=500 + 173 * number**2 % 8_009
        )
        for number in range(36)
    ]
    half = sum(one.resident_mib for one in residents) // 2 + 1
    search = search_of(residents, half)
    search.answer()
    assert search.cut
    assert search.steps < eviction.STEPS + 100
    found = plan(Wanted("new", half, 0), residents, 0, None)
    assert sum(one.freed_mib for one in found.evictions) < half * 1.01
    assert found.explanation.endswith("no lighter one was found that would do.")
