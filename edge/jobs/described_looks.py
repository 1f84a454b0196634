"""What the routes take and answer that look at jobs, for /openapi.json."""

from collections.abc import Iterable
from typing import Any

from edge.documenting import Operation, answers, header, query, ref, said
from edge.jobs.events import HEADER
from edge.jobs.listing import MOST, USUAL
from edge.jobs.reading import KINDS, STATES
from edge.jobs.views import JobView
from edge.speech import ErrorEnvelope

Told = dict[int | str, dict[str, Any]]

_WORD = {"type": "string"}
_FILE = {"schema": {"type": "string", "format": "binary"}}
_PICTURES = dict.fromkeys(("image/webp", "image/png", "image/jpeg"), _FILE)
_CHANGES = "Events named `job`, each with the job."


def _of(words: Iterable[str]) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "enum": list(words)}}


_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL}
FILTERS: Operation = {
    "parameters": [
        query("state", "Jobs of these states.", _of(STATES.values())),
        query("kind", "Jobs of these kinds.", _of(KINDS.values())),
        query("limit", "Most jobs of a page.", _LIMIT),
        query("page_token", "`next_page_token` of the page before.", _WORD),
    ]
}
RESUMED: Operation = {
    "parameters": [
        header(
            HEADER,
            "The `id` of the last event that was seen.",
            {"type": "string", "pattern": r"^[0-9]{1,19}$"},
        )
    ]
}
RANGES: Operation = {
    "parameters": [
        header("range", "One range of bytes.", _WORD),
        header("if-range", "The `etag` that the range is of.", _WORD),
        header("if-none-match", "The `etag` of what is there already.", _WORD),
    ]
}
WATCHED: Told = {
    **answers(JobView, _CHANGES, 400, 404, 503),
    200: {
        "description": _CHANGES,
        "content": {"text/event-stream": {"schema": ref((JobView, ErrorEnvelope))}},
    },
    204: {"description": "The last event that was seen was the last there is."},
}
READ: Told = {
    **answers(JobView, "The file.", 404, 503),
    200: {"description": "The file.", "content": _PICTURES},
    206: {"description": "The part of it that was wanted.", "content": _PICTURES},
    304: {"description": "It is what is there already."},
    410: said(ErrorEnvelope, "The file is kept no longer."),
    416: said(ErrorEnvelope, "There are no such bytes."),
}
