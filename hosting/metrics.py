"""Prometheus metrics of services with engines: what their engines tell, added up.

Engines have no port to be scraped from, and come and go; their service stays.
"""

from prometheus_client import Counter

from cohabit.models.v1 import models_pb2 as pb

DRAFTED = Counter(
    "cohabit_speculation_drafted_tokens_total", "Tokens that engines guessed ahead.", ["model"]
)
ACCEPTED = Counter(
    "cohabit_speculation_accepted_tokens_total", "Guesses that the model made, too.", ["model"]
)
SAVED = Counter(
    "cohabit_speculation_saved_calls_total", "Decode steps that guessing has saved.", ["model"]
)


def count_speculation(model: str, before: pb.Speculation | None, now: pb.Speculation) -> None:
    """Add what has come to one engine's figures since it told `before`."""
    before = before or pb.Speculation()
    DRAFTED.labels(model).inc(max(0, now.drafted_tokens - before.drafted_tokens))
    ACCEPTED.labels(model).inc(max(0, now.accepted_tokens - before.accepted_tokens))
    SAVED.labels(model).inc(max(0, now.saved_calls - before.saved_calls))
