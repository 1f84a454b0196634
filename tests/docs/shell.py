"""A shell in which the blocks of a page are typed one after the other, as a person would."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.reading import ROOT

_BLOCK_S = 240
_SHOWN = 4000

# What a block has set, and the folder it went to, are there for the next one.
_FRAME = """
set -euo pipefail
. "{state}"
trap 'declare -p | grep -v "^declare -[a-zA-Z]*r" > "{state}"; echo "cd $PWD" >> "{state}"' EXIT
{commands}
"""


@dataclass
class Shell:
    """One of one page, in a folder that looks like a clone."""

    folder: Path
    replaced: Mapping[str, str] = field(default_factory=dict)
    """What stands in the page, and what it is here: ports, mostly."""
    env: Mapping[str, str] = field(default_factory=dict)
    _programs: str = ""

    def type(self, commands: str) -> str:
        """Run a block; what it printed. Fails when one of its commands does."""
        state = self.folder / ".shell"
        if not state.exists():
            state.write_text("")
        script = _FRAME.format(state=state, commands=self._here(commands))
        return self._run(["bash", "-c", script], commands)

    def program(self, text: str) -> str:
        """Run a program after those that the page has shown before; what it printed."""
        self._programs += self._here(text) + "\n"
        return self._run([sys.executable, "-c", self._programs], text)

    def _here(self, text: str) -> str:
        for told, here in self.replaced.items():
            text = text.replace(told, here)
        return text

    def _run(self, argv: list[str], shown: str) -> str:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_BLOCK_S,
            text=True,
            errors="replace",
            check=False,
        )
        said = done.stdout[-_SHOWN:]
        assert done.returncode == 0, f"exit status {done.returncode} of\n{shown}\nIt said:\n{said}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
        programs = f"{self.folder}/bin:{self.folder}/.venv/bin:{os.environ['PATH']}"
        return {
            **kept,
            "HOME": str(self.folder),
            "PATH": programs,
            "PYTHONPATH": f"{ROOT}:{ROOT}/gen",
            "PYTHON": sys.executable,
            "NO_PROXY": "*",
            **self.env,
        }
