"""Which jobs a query asks for. Pure."""

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams

from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.errors import bad_field
from edge.jobs.reading import KINDS, STATES

MOST = 200
USUAL = 50


def list_request(query: QueryParams, owner: str) -> pb.ListJobsRequest:
    """The page that a query asks for. Raises Fault."""
    return pb.ListJobsRequest(
        owner=owner,
        states=_numbers(query, "state", STATES),
        kinds=_numbers(query, "kind", KINDS),
        page_size=_limit(query.get("limit")),
        page_token=query.get("page_token", ""),
    )


def _limit(given: str | None) -> int:
    if given is None:
        return USUAL
    is_number = given.isascii() and given.isdecimal() and len(given) <= len(str(MOST))
    if not is_number or not 1 <= int(given) <= MOST:
        raise bad_field("limit", f"`limit` must be from 1 to {MOST}.")
    return int(given)


def _numbers(query: QueryParams, name: str, words: Mapping[int, str]) -> list[Any]:
    """The values of a filter, which may be given several times, or with commas."""
    numbers = {word: number for number, word in words.items()}
    given = [word for text in query.getlist(name) for word in text.split(",") if word]
    if unknown := [word for word in given if word not in numbers]:
        known = ", ".join(numbers)
        raise bad_field(name, f"`{name}` must be of {known}; `{unknown[0][:64]}` is none of them.")
    return [numbers[word] for word in dict.fromkeys(given)]
