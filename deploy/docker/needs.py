"""What the project takes beside its own code, for pip: `needs.py` for its dependencies alone,
`needs.py llm` for those of an extra. Read from pyproject.toml, so that they stand there only.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = sys.argv[1:]
needs = project["dependencies"] if not extras else []
for extra in extras:
    needs += project["optional-dependencies"][extra]
sys.stdout.write("\n".join(needs) + "\n")
