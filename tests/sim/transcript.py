"""What every transcript here is: blocks of commands, and under each what was decided. Pure.

    # A comment, which says why.
    free a wants m
    ----
    queued a at 0

Above the dashes commands, a line each; below them, up to the next empty line, exactly what came of
them. Nothing waits and no clock runs: time is a command. What commands there are is for a world to
say (`Commands`).

A transcript is a test (`test_transcripts.py`). `COHABIT_REWRITE=1` has it write what is decided
now: read the difference before you commit it.
"""

import inspect
import re
import shlex
from collections.abc import Iterator

_TIME = re.compile(r"(\d+)(ms|s|min)")
_UNIT_MS = {"ms": 1, "s": 1_000, "min": 60_000}


class TranscriptError(Exception):
    """A transcript that cannot be replayed: which file, which line, and what is wrong there."""


class Commands:
    """A world that transcripts act on: every method `do_NAME` is a command.

    Its docstring begins with its usage, then says what it stands for; its arguments are the words
    of the line. It returns what came of it, a line each.
    """

    now = 0
    """The clock of the transcript, in milliseconds."""

    def run(self, line: str) -> list[str]:
        """Perform one command."""
        name, *words = shlex.split(line)
        handler = getattr(self, f"do_{name}", None)
        if handler is None:
            raise ValueError(f"there is no such command; there are {', '.join(self.names())}")
        try:
            inspect.signature(handler).bind(*words)
        except TypeError as error:
            raise ValueError(f"{error}; it goes: {inspect.getdoc(handler)}") from None
        found: list[str] = handler(*words)
        return found

    @classmethod
    def names(cls) -> list[str]:
        """Of the commands."""
        return [name.removeprefix("do_") for name in dir(cls) if name.startswith("do_")]


def replay(text: str, world: Commands, name: str) -> Iterator[str]:
    """The transcript with what is decided now, line by line; `name` is its file's, for errors."""
    commands: list[tuple[int, str]] = []
    in_answer = False
    for number, line in enumerate(text.splitlines(), 1):
        if line == "----":
            yield line
            in_answer = True
            for at, command in commands:
                yield from _perform(world, command, f"{name}:{at}")
            commands = []
        elif not line.strip():
            in_answer = False
            yield line
        elif not in_answer:
            yield line
            if not line.startswith("#"):
                commands.append((number, line))
    if commands:
        at, command = commands[0]
        raise TranscriptError(f'{name}:{at}: "{command}" has no line of dashes under it')


def _perform(world: Commands, command: str, where: str) -> list[str]:
    try:
        return world.run(command)
    except Exception as error:
        raise TranscriptError(f'{where}: "{command}": {error or type(error).__name__}') from error


def options(words: tuple[str, ...], *names: str) -> dict[str, str]:
    """Options `name=value`, or a bare `name`. A name that ends in a dot stands for all that begin
    with it."""
    found = dict(word.partition("=")[::2] for word in words)
    families = tuple(name for name in names if name.endswith("."))
    for name in found:
        if name not in names and not (families and name.startswith(families)):
            raise ValueError(f'there is no option "{name}"; there are {", ".join(names)}')
    return found


def ms(text: str) -> int:
    """A length of time: 250ms, 5s, 2min."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is no length of time; write 250ms, 5s or 2min')
    return int(match[1]) * _UNIT_MS[match[2]]


def shown(time_ms: int) -> str:
    """A length of time, the way `ms` reads it."""
    return f"{time_ms // 1_000}s" if time_ms and time_ms % 1_000 == 0 else f"{time_ms}ms"
