"""The user's cache folder, which all projects and clones of a user share."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """Returns `kappa/NAME` in the user's cache folder. Raises RuntimeError without a home."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kappa" / name
