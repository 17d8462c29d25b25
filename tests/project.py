"""``pyproject.toml`` as data."""

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def project() -> dict[str, Any]:
    """The table ``[project]``."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
