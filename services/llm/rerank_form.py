"""How a query and a document become one text for a reranker that brings a template of its own.

The template comes with the file and is trusted, query and document come from anybody: names of
control tokens in them stay text. They are marked by Unicode noncharacters, as `template.py` does,
so that everything else is tokenised across the seams, as the model was trained.
"""

import re
from collections.abc import Iterable

from services.llm.template import Segment

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARKED = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
_FIELD = re.compile(r"\{(query|document)\}")


class RerankForm:
    """`template` holds `{query}` and `{document}`; `controls` are the names of control tokens."""

    def __init__(self, template: str, controls: Iterable[str] = ()) -> None:
        self._template = template
        names = sorted({name for name in controls if name}, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, names))) if names else None

    def segments(self, query: str, document: str) -> tuple[Segment, ...]:
        """The pair as one prompt."""
        given = {"query": self._marked(query), "document": self._marked(document)}
        # In one pass: a query that says `{document}` is not filled in.
        text = _FIELD.sub(lambda found: given[found[1]], self._template)
        pieces = _MARKED.split(text)
        return tuple(Segment(piece, i % 2 == 0) for i, piece in enumerate(pieces) if piece)

    def _marked(self, text: str) -> str:
        text = text.replace(_OPEN, "\ufffd").replace(_CLOSE, "\ufffd")
        if self._controls is None:
            return text
        return self._controls.sub(lambda found: f"{_OPEN}{found[0]}{_CLOSE}", text)
