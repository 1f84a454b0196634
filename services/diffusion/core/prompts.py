"""How long a prompt is for the text encoders, before there is a tokenizer to ask. Pure.

The encoders' memory grows with the square of the tokens, and the library has no bound of its own.
Counted from above for what people write: words by four letters, every figure and every mark, two a
character outside ASCII. Real vocabularies need fewer tokens.
"""

import re

_LETTERS_PER_TOKEN = 4
_TOKENS_PER_FOREIGN = 2
_PARTS = re.compile(r"[A-Za-z]+|[ \t\r\n]+|[^A-Za-z \t\r\n]")


def most_tokens(text: str) -> int:
    """Tokens of `text`, rather too many than too few."""
    return sum(_tokens(part) for part in _PARTS.findall(text))


def _tokens(part: str) -> int:
    if part.isspace() and part.isascii():
        return (len(part) - 1) // _LETTERS_PER_TOKEN + (len(part) > 1)
    if part.isascii() and part.isalpha():
        return -(-len(part) // _LETTERS_PER_TOKEN)
    return 1 if part.isascii() else _TOKENS_PER_FOREIGN
