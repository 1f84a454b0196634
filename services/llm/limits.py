"""What a request may ask for: ranges that the native samplers would misread, and bounds."""

import math

from chassis.errors import Fault, Reason
from services.llm.values import GenerateParams, SamplingParams

MAX_STOPS = 64
MAX_STOP_BYTES = 256
MAX_LOGIT_BIASES = 1024
MAX_CHOICES = 16
MAX_TOP_LOGPROBS = 20


def _refuse(what: str, expected: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, f"`{what}` must be {expected}.", metadata={"param": what})


def check_params(params: GenerateParams, vocabulary_tokens: int) -> None:
    """Refuse what the native samplers would misread. Raises Fault INVALID_REQUEST."""
    if params.max_tokens < 0:
        raise _refuse("max_tokens", "0 or more")
    if len(params.stop) > MAX_STOPS:
        raise _refuse("stop", f"at most {MAX_STOPS} strings")
    if any(not 0 < len(stop.encode()) <= MAX_STOP_BYTES for stop in params.stop):
        raise _refuse("stop", f"strings of 1 to {MAX_STOP_BYTES} bytes")
    if not 1 <= params.choices <= MAX_CHOICES:
        raise _refuse("n", f"from 1 to {MAX_CHOICES}")
    if not 0 <= params.top_logprobs <= MAX_TOP_LOGPROBS:
        raise _refuse("top_logprobs", f"from 0 to {MAX_TOP_LOGPROBS}")
    if params.top_logprobs and not params.logprobs:
        raise _refuse("top_logprobs", "used together with `logprobs`")
    if params.max_sentences < 0:
        raise _refuse("max_sentences", "0 (no limit) or more")
    if not 0.0 <= params.min_probability <= 1.0:
        raise _refuse("min_probability", "from 0 (no limit) to 1")
    _check_sampling(params.sampling, vocabulary_tokens)


def _check_sampling(s: SamplingParams, vocabulary_tokens: int) -> None:
    ranges = (
        ("temperature", s.temperature, 0.0, 2.0, "from 0 to 2"),
        ("top_p", s.top_p, 1e-6, 1.0, "above 0 and at most 1"),
        ("min_p", s.min_p, 0.0, 1.0, "from 0 to 1"),
        ("typical_p", s.typical_p, 1e-6, 1.0, "above 0 and at most 1"),
        ("repetition_penalty", s.repetition_penalty, 1e-3, 1e3, "above 0 (0.001 to 1000)"),
        ("presence_penalty", s.presence_penalty, -2.0, 2.0, "from -2 to 2"),
        ("frequency_penalty", s.frequency_penalty, -2.0, 2.0, "from -2 to 2"),
    )
    for name, value, low, high, words in ranges:
        if not low <= value <= high:  # NaN too
            raise _refuse(name, words)
    if not 0 <= s.top_k < 2**31:
        raise _refuse("top_k", "0 (all) or more")
    if not 0 <= s.penalty_window_tokens < 2**31:
        raise _refuse("penalty_window_tokens", "0 or more")
    if s.seed is not None and not 0 <= s.seed < 2**64:
        raise _refuse("seed", "from 0 to 2^64 - 1")
    if len(s.logit_bias) > MAX_LOGIT_BIASES:
        raise _refuse("logit_bias", f"of at most {MAX_LOGIT_BIASES} tokens")
    for token, bias in s.logit_bias.items():
        if not 0 <= token < vocabulary_tokens or not math.isfinite(bias):
            raise _refuse("logit_bias", f"finite, by token ids below {vocabulary_tokens}")
