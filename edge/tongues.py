"""Which dialect a request is answered in, also where it never reaches a route of that dialect.

A dialect of its own way to say no has its line here; OpenAI's is that of everything else.
"""

from starlette.types import Scope

from edge.anthropic.words import ANTHROPIC
from edge.speech import OPENAI, Speech

ANTHROPIC_HEADER = b"anthropic-version"

_BELOW: tuple[tuple[str, Speech], ...] = (("/v1/messages", ANTHROPIC),)
_SHARED = "/v1/models"
"""Spoken in two dialects: the header, which Anthropic's clients always send, tells which."""


def speech_of(scope: Scope) -> Speech:
    """The dialect of a request, by its path and headers alone."""
    path: str = scope["path"]
    for prefix, speech in _BELOW:
        if _is_below(path, prefix):
            return speech
    if _is_below(path, _SHARED) and any(name == ANTHROPIC_HEADER for name, _ in scope["headers"]):
        return ANTHROPIC
    return OPENAI


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")
