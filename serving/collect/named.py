"""The names of sources, which must fit into the name of an environment variable."""

from __future__ import annotations

import re

from kappa.base.errors import SettingsError

# A variable has the name in capitals, with two _ between the parts of a setting.
_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_LONGEST = 64


def ensure_name(section: str, name: str) -> None:
    """Raises SettingsError if a section's name cannot be part of its secrets' names."""
    if _NAME.fullmatch(name) is None or len(name) > _LONGEST:
        raise SettingsError(
            f"{section}.{name[:_LONGEST]} is not a valid source name, since no variable of the "
            "environment could give it a token",
            hint=f"name it with 1 to {_LONGEST} small letters, digits and single _: "
            f"[{section}.{_near(name)}]",
        )


def _near(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:_LONGEST] or "shop"
