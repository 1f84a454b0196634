"""How long an answer lets wait for its first token."""

import time

from cohabit.llm.v1 import llm_pb2
from edge.signals.metrics import FIRST_TOKEN_SECONDS, model_label


class FirstToken:
    """Of one request, which is understood when this is made."""

    __slots__ = ("_began_s", "seen")

    def __init__(self) -> None:
        self._began_s, self.seen = time.monotonic(), False

    def see(self, message: llm_pb2.GenerateResponse, model: str) -> None:
        """A message of the engine that runs `model`; the first with a token ends the wait."""
        if not self.seen and message.tokens:
            self.seen = True
            waited_s = time.monotonic() - self._began_s
            FIRST_TOKEN_SECONDS.labels(model_label(model)).observe(waited_s)
