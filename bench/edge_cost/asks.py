"""What both proxies are asked, and what the null model behind them answers. Pure."""

import json
from dataclasses import dataclass
from typing import Any

_PREFIX = "null-"
WORDS = tuple(f" word{number:02d}" for number in range(64))
"""The answer: one token each."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One kind of request."""

    name: str
    clients: int
    """Who ask at once."""
    pace_ms: int
    """Between the tokens of a stream; 0: all tokens in one body."""
    share: float
    """Of the requests of a round, as streams take their time."""

    @property
    def stream(self) -> bool:
        """Whether the answer comes token by token."""
        return self.pace_ms > 0

    @property
    def model(self) -> str:
        """The name by which the null model has this pace."""
        return f"{_PREFIX}{self.pace_ms}"

    @property
    def request(self) -> bytes:
        """As it goes over the wire, on a connection that is kept."""
        body = json.dumps(
            {
                "model": self.model,
                "messages": [
                    {"role": "system", "content": "You answer in short sentences."},
                    {"role": "user", "content": "Tell me what the sea is like in winter. " * 8},
                ],
                "max_tokens": len(WORDS),
                "temperature": 0.7,
                "stream": self.stream,
            }
        ).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


ASKS = (
    Ask("one body", clients=8, pace_ms=0, share=1.0),
    Ask("stream, busy", clients=8, pace_ms=5, share=0.2),
    # With 2 clients a proxy has gone to sleep before each token.
    Ask("stream, one by one", clients=2, pace_ms=10, share=0.1),
)
MODELS = tuple(ask.model for ask in ASKS)


def pace_s_of(model: str) -> float:
    """Between two tokens of the null model by this name."""
    return int(model.removeprefix(_PREFIX)) / 1000


def whole_answer() -> bytes:
    """The null model's answer, as OpenAI has it in one body."""
    message = {"role": "assistant", "content": "".join(WORDS)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {
        "prompt_tokens": 80,
        "completion_tokens": len(WORDS),
        "total_tokens": 80 + len(WORDS),
    }
    return json.dumps(_framed("chat.completion", choice) | {"usage": usage}).encode()


def events() -> tuple[bytes, ...]:
    """The same as a stream: one event a token, the last of them with the end."""
    deltas: list[dict[str, Any]] = [{"content": word} for word in WORDS]
    deltas[0] |= {"role": "assistant"}
    told = [_event({"index": 0, "delta": delta, "finish_reason": None}) for delta in deltas]
    end = _event({"index": 0, "delta": {}, "finish_reason": "stop"})
    return (*told, end + b"data: [DONE]\n\n")


def _event(choice: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(_framed("chat.completion.chunk", choice)).encode()


def _framed(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-null",
        "object": kind,
        "created": 1_700_000_000,
        "model": "null",
        "choices": [choice],
    }
