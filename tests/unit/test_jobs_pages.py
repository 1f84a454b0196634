"""Pages of jobs: steady while new ones arrive, and tokens that are good for one listing alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.jobs.core.pages import InvalidToken, Listing, page
from services.jobs.core.values import (
    Job,
    JobKind,
    JobState,
    Limits,
)
from tests.jobs_world import World, draft


def state(world: World, name: str) -> JobState:
    return world.rows[name].state


# -- pages ---------------------------------------------------------------------------------------


def many(count: int) -> list[Job]:
    world = World(Limits(running=2, open_jobs=1000, jobs=1000, bytes=1000))
    for number in range(count):
        world.submit(draft(f"j{number}", "three" if number % 3 else "cutout"))
    return list(world.book.jobs.values())


@given(st.integers(0, 25), st.integers(1, 10), st.integers(0, 6))
def test_pages_show_every_job_once_while_new_ones_arrive(
    count: int, size: int, arriving: int
) -> None:
    jobs, shown, token = many(count + arriving), [], ""
    listing, there = Listing("o"), count
    for _ in range(100):
        found, token = page(reversed(jobs[:there]), listing, size, token)
        shown += found
        assert len(found) <= size
        there = min(len(jobs), there + 1)
        if not token:
            break
    assert [job.seq for job in shown] == sorted((job.seq for job in jobs[:count]), reverse=True)


def test_filters_match_states_kinds_and_owners() -> None:
    jobs = many(9)
    cutouts = Listing("o", kinds=frozenset({JobKind.BACKGROUND_REMOVAL}))
    assert {job.kind for job in page(jobs, cutouts, 50, "")[0]} == {JobKind.BACKGROUND_REMOVAL}
    running = Listing("o", states=frozenset({JobState.RUNNING}))
    assert len(page(jobs, running, 50, "")[0]) == 2
    assert page(jobs, Listing("else"), 50, "") == ([], "")


@given(st.text(max_size=40))
def test_no_other_text_is_a_token(text: str) -> None:
    jobs = many(3)
    _, token = page(reversed(jobs), Listing("o"), 1, "")
    if text and text != token:
        with pytest.raises(InvalidToken):
            page(reversed(jobs), Listing("o"), 1, text)


def test_a_token_is_good_for_its_own_listing_alone() -> None:
    jobs = many(3)
    _, token = page(reversed(jobs), Listing("o"), 1, "")
    with pytest.raises(InvalidToken):
        page(reversed(jobs), Listing("o", kinds=frozenset({1})), 1, token)
