"""What pip has to install beside the project's own code: `needs.py llm` for an extra of
pyproject.toml, where alone that stands; `dependencies` for what everything needs.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
groups = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
for name in sys.argv[1:]:
    sys.stdout.write("\n".join(groups[name]) + "\n")
