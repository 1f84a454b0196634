"""What a page tells people to type: its fenced blocks, each with the scene that it is for.

A scene is what must stand before the commands work: a house with certain models, or nothing at all.
A page names it in a comment that readers do not see, and it holds until the next one:

    <!-- scene: house -->

Blocks of `sh` are commands; of `console`, the lines after `$ ` are, with those indented below.
Blocks of `python` are programs, those of one page one after the other.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "bench/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
)

_SCENE = re.compile(r"<!-- scene: ([\w-]+) -->")
_FENCE = re.compile(r"```(\w*)")


@dataclass(frozen=True, slots=True)
class Block:
    """Something to run."""

    page: Path
    line: int
    """Of its first command; from 1."""
    language: Literal["shell", "python"]
    text: str
    scene: str
    """Empty: the page names none."""

    @property
    def name(self) -> str:
        """Page and line, for people."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """All of a page, in its order."""
    scene, language, taken = "", "", [""]
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if found := _SCENE.fullmatch(line.strip()):
            scene = found[1]
        elif line.strip() == "```" and language:
            if (block := _block(page, number - len(taken), language, taken, scene)) is not None:
                yield block
            language = ""
        elif not language and (fence := _FENCE.fullmatch(line.strip())):
            language, taken = fence[1] or "text", []
        elif language:
            taken.append(line)


def _block(page: Path, line: int, language: str, lines: list[str], scene: str) -> Block | None:
    if language in {"sh", "bash", "shell"}:
        return Block(page, line, "shell", "\n".join(lines), scene)
    if language == "console":
        return Block(page, line, "shell", "\n".join(_typed(lines)), scene)
    if language == "python":
        return Block(page, line, "python", "\n".join(lines), scene)
    return None


def _typed(lines: list[str]) -> Iterator[str]:
    """The commands among lines of a terminal: after `$ `, with the lines indented below."""
    inside = False
    for line in lines:
        inside = line.startswith("$ ") or (inside and line.startswith("    "))
        if inside:
            yield line.removeprefix("$ ")
