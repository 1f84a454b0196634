"""How many prompt tokens a step may bring along while neighbours decode. Pure.

The bound in tokens suits a device; what neighbours feel is time, which grows with the length of the
prompt and with what else the machine does. So the time of past steps decides: as many tokens as
`TARGET_S` allows, by the mean cost of a token in recent steps, and never more than the bound.
"""

TARGET_S = 0.25
LEAST_TOKENS = 8
"""A newcomer always gets on."""
_WEIGHT = 0.3
"""Of the last step in the mean: three or four steps are remembered."""


class Pace:
    """Of one decode loop."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._token_s = 0.0

    @property
    def chunk_tokens(self) -> int:
        """For the next step."""
        if self._token_s <= 0:
            return self._most_tokens
        wanted = int(TARGET_S / self._token_s)
        return min(self._most_tokens, max(wanted, LEAST_TOKENS))

    def observe(self, prompt_tokens: int, step_s: float) -> None:
        """A step with neighbours, of which `prompt_tokens` were a newcomer's, took that long."""
        token_s = step_s / prompt_tokens
        self._token_s += (token_s - self._token_s) * (_WEIGHT if self._token_s else 1.0)
