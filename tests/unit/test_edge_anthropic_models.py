"""Models page by page, against a list cut by hand."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from chassis.errors import Fault
from cohabit.models.v1 import models_pb2 as pb
from edge.anthropic.models import PageWish, info, page, page_wish
from edge.speech import PARAM

NAMED = {name: (pb.Model(key=name),) for name in "ecabd"}


def names(wish: PageWish) -> tuple[str, bool]:
    got = page(NAMED, wish)
    ids = [model.id for model in got.data]
    ends = (ids[0], ids[-1]) if ids else (None, None)
    assert (got.first_id, got.last_id) == ends
    return "".join(ids), got.has_more


@pytest.mark.parametrize(
    ("wish", "shown", "has_more"),
    [
        (PageWish(), "abcde", False),
        (PageWish(2), "ab", True),
        (PageWish(2, after_id="b"), "cd", True),
        (PageWish(2, after_id="c"), "de", False),
        (PageWish(2, after_id="bb"), "cd", True),
        (PageWish(2, after_id="e"), "", False),
        (PageWish(2, before_id="e"), "cd", True),
        (PageWish(2, before_id="c"), "ab", False),
        (PageWish(2, before_id="a"), "", False),
        (PageWish(active=False), "", False),
    ],
)
def test_pages(wish: PageWish, shown: str, has_more: bool) -> None:
    assert names(wish) == (shown, has_more)


@given(st.integers(1, 6), st.booleans())
def test_pages_put_together_are_the_list(limit: int, backwards: bool) -> None:
    seen: list[str] = []
    cursor, more = ("~" if backwards else ""), True
    while more:
        wish = PageWish(limit, before_id=cursor) if backwards else PageWish(limit, after_id=cursor)
        got = page(NAMED, wish)
        ids = [model.id for model in got.data]
        seen = [*ids, *seen] if backwards else [*seen, *ids]
        cursor, more = (got.first_id if backwards else got.last_id) or "", got.has_more
    assert seen == sorted(NAMED)


def test_what_is_told_of_twins() -> None:
    twins = [
        pb.Model(
            key=key,
            created_unix_ms=created_s * 1000,
            capabilities=pb.Capabilities(context_tokens=tokens),
        )
        for key, created_s, tokens in (("a", 9, 100), ("b", 7, 200))
    ]
    told = info("twins", twins)
    assert (told.id, told.display_name, told.max_input_tokens) == ("twins", "twins", 200)
    assert told.created_at == datetime.fromtimestamp(9, UTC)
    assert info("x", [pb.Model()]).max_input_tokens is None


@pytest.mark.parametrize(
    ("query", "wish"),
    [
        ("", PageWish()),
        ("limit=1000&after_id=x", PageWish(1000, after_id="x")),
        ("before_id=org/x", PageWish(before_id="org/x")),
        ("lifecycle[]=retired&lifecycle[]=active", PageWish()),
        ("lifecycle[]=retired", PageWish(active=False)),
    ],
)
def test_the_query_is_understood(query: str, wish: PageWish) -> None:
    assert page_wish(QueryParams(query)) == wish


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=", "limit"),
        ("limit=٣", "limit"),
        (f"limit={'9' * 5000}", "limit"),
        ("after_id=a&before_id=b", "before_id"),
    ],
)
def test_a_query_that_makes_no_sense(query: str, param: str) -> None:
    with pytest.raises(Fault) as caught:
        page_wish(QueryParams(query))
    assert caught.value.metadata[PARAM] == param
