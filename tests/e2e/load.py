"""Clients that ask without pause, as OpenAI's own would, and remember every request that failed."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import openai

_ASKED_S = 180.0
_TOKENS = 8


@dataclass
class Tally:
    """What became of the requests so far. Threads add to it; lists and counts are read whole."""

    done: int = 0
    slowest_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, took_s: float, failure: str | None) -> None:
        with self.lock:
            self.done += 1
            self.slowest_s = max(self.slowest_s, took_s)
            if failure is not None:
                self.lost.append(failure)


@contextmanager
def asking(url: str, key: str, clients: int, *, retries: int = 0) -> Iterator[Tally]:
    """`clients` ask until the block ends; then what runs is waited for.

    `retries`: how often the client itself asks again, which is 2 where nobody says otherwise.
    """
    tally, over = Tally(), threading.Event()
    threads = [
        threading.Thread(target=_ask_on, args=(url, key, retries, tally, over, number))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield tally
    finally:
        over.set()
        for thread in threads:
            thread.join(_ASKED_S)


def _ask_on(
    url: str, key: str, retries: int, tally: Tally, over: threading.Event, number: int
) -> None:
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(
        base_url=f"{url}/v1", api_key=key, max_retries=retries, timeout=_ASKED_S, http_client=http
    ) as client:
        turn = number
        while not over.is_set():
            turn += 1
            began = time.monotonic()
            try:
                _ask(client, stream=turn % 2 == 0)
            except (openai.OpenAIError, AssertionError) as error:
                at = time.strftime("%H:%M:%S")
                tally.add(time.monotonic() - began, f"{at} {type(error).__name__}: {error}")
            else:
                tally.add(time.monotonic() - began, None)


def _ask(client: openai.OpenAI, *, stream: bool) -> None:
    """One chat, whole. Raises what the client raises, and AssertionError for half an answer."""
    if not stream:
        answer = client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Say a word."}],
            max_tokens=_TOKENS,
        )
        assert answer.choices[0].finish_reason in {"stop", "length"}, answer
        return
    chunks = list(
        client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Say a word."}],
            max_tokens=_TOKENS,
            stream=True,
        )
    )
    ends = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    assert set(ends) & {"stop", "length"}, "the stream broke off"
