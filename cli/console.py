"""How the command talks to people: refusals, colour on terminals alone, text made safe to print."""

import sys
from typing import NoReturn

_RED, _PLAIN = "\033[31m", "\033[0m"
# Control characters of foreign text could move the cursor or retitle the window.
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Refused(Exception):
    """The command cannot do what was asked; the text is one sentence for people."""


def error(message: str) -> None:
    """Print `message` on stderr, red on a terminal."""
    red, plain = (_RED, _PLAIN) if sys.stderr.isatty() else ("", "")
    sys.stderr.write(f"{red}{message}{plain}\n")


def fail(message: str, code: int = 1) -> NoReturn:
    """Print `message` and exit with `code`."""
    error(message)
    raise SystemExit(code)


def note(message: str) -> None:
    """A line for people on stderr; stdout is for what was asked for."""
    sys.stderr.write(f"{message}\n")


def printable(text: str) -> str:
    """`text` without control characters; newlines and tabs stay."""
    return text.translate(_CONTROLS)


def size(count: float) -> str:
    """Bytes in words, e.g. "94.3 MiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
