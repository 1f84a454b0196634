"""What an engine process is told of the model that it pretends to be. Pure values.

Times and rates are scaled already; `time_scale` is for times that a request brings along.
"""

from dataclasses import dataclass

LANGUAGE = "language"


@dataclass(frozen=True, slots=True)
class Profile:
    """Memory and pace of one model; field by field as in the configuration."""

    kind: str
    places: int
    context_tokens: int
    answer_tokens: int
    resident_mib: int
    peak_mib: int
    load_s: float
    unload_s: float
    work_s: float
    prefill_tokens_per_s: float
    tokens_per_s: float
    time_scale: float = 1.0

    @property
    def answers(self) -> bool:
        """Whether it is a language model."""
        return self.kind == LANGUAGE
