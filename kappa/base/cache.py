"""Where what is made once for a user is kept, for all his projects and clones."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """`kappa/NAME` in the user's cache folder. Raises RuntimeError where he has no home."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kappa" / name
