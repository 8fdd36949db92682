"""A section of kappa.toml, and the types of its settings. Values.

An error about a setting shows its description to the user. `SECRET` marks a secret: nothing shows
its value.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_type_hints

from msgspec import Meta, Struct

# The type of a setting has the bounds, the description and, for a secret, the mark SECRET.
SECRET = object()
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
# Examples of sizes are 512m and 4g; of durations 90s, 30m, 1h and 2d.
Size = Annotated[str, Meta(pattern=r"^\d+[mg]\Z")]
Duration = Annotated[str, Meta(pattern=r"^\d{1,12}[smhd]\Z")]


class Section(Struct, frozen=True):
    """A table of kappa.toml, or all of it."""

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """Returns the type of each setting."""
        return get_type_hints(cls, include_extras=True)

    def __repr__(self) -> str:
        shown = [name for name, kind in self.kinds().items() if not is_secret(kind)]
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def is_secret(kind: Any) -> bool:
    """Returns True if nothing may show the value of a setting of this type."""
    return SECRET in get_args(kind)


def description(kind: Any) -> str:
    """Returns the description in the type of a setting; that of a section has none."""
    return next((each for each in get_args(kind) if isinstance(each, str)), "")
