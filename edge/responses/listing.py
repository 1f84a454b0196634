"""A page of the items that went into a response: the query's fields, and what they choose. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge.errors import bad_field
from edge.responses.objects import ListedItem, ResponseItemList

MOST = 100
USUAL = 20
ORDERS = ("asc", "desc")


@dataclass(frozen=True, slots=True)
class PageWish:
    """Which page."""

    limit: int = USUAL
    newest_first: bool = True
    after: str = ""
    """The id of the last item of the page before; empty: from the beginning."""


def wish_of(query: Mapping[str, str]) -> PageWish:
    """The page that a query asks for. Raises Fault."""
    limit, order = query.get("limit", str(USUAL)), query.get("order", "desc")
    if not limit.isdecimal() or len(limit) > len(str(MOST)) or not 1 <= int(limit) <= MOST:
        raise bad_field("limit", f"`limit` must be from 1 to {MOST}.")
    if order not in ORDERS:
        raise bad_field("order", f"`order` must be one of {', '.join(ORDERS)}.")
    return PageWish(int(limit), order == "desc", query.get("after", ""))


def page(items: Sequence[ListedItem], wish: PageWish) -> ResponseItemList:
    """That page of `items`, which stand in the order of the conversation. Raises Fault."""
    ordered = list(reversed(items)) if wish.newest_first else list(items)
    begin = _behind(ordered, wish.after) if wish.after else 0
    data = ordered[begin : begin + wish.limit]
    first, last = (data[0].id, data[-1].id) if data else ("", "")
    return ResponseItemList(data, first, last, begin + len(data) < len(ordered))


def _behind(items: Sequence[ListedItem], name: str) -> int:
    for i, item in enumerate(items):
        if item.id == name:
            return i + 1
    raise bad_field("after", f"There is no item `{name[:64]}` to list those after.")
