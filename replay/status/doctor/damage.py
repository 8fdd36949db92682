"""One thing that is damaged below a root. Values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged thing.

    `follows` is what does not work because of it, and `then` what will after a repair. A repair
    moves `names`, objects below the root, aside; without any, the hint is all that can be done.
    """

    what: str
    follows: str
    names: tuple[str, ...] = ()
    then: str = ""
    hint: str = ""

    def lines(self, number: int) -> tuple[str, ...]:
        """Returns it as lines for people, with its number."""
        files = "1 file is" if len(self.names) == 1 else f"{len(self.names)} files are"
        return (
            f"{number}. {self.what}",
            f"   now:    {self.follows}",
            *((f"   repair: {files} moved aside; {self.then}",) if self.names else ()),
            *((f"   hint:   {self.hint}",) if self.hint else ()),
        )
