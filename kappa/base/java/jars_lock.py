"""The lock of the jars: the format of `jars.lock`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kappa.base.errors import Damaged

Use = Literal["broker", "spark", "bucket"]
_RESTORE = "restore kappa/base/java/jars.lock from the repository"


@dataclass(frozen=True, slots=True)
class Jar:
    """A line of the lock: a jar's use, coordinates, and expected size and hash."""

    use: Use
    size: int
    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        """Returns the name of the jar's file in the cache."""
        return f"{self.artifact}-{self.version}.jar"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parses the lock: a jar per line, `use bytes sha256 group:artifact:version`, or `#` prose."""
    jars: list[Jar] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match line.replace(":", " ").split():
            case ["broker" | "spark" | "bucket" as use, size, sha256, group, artifact, version] if (
                size.isdigit() and len(sha256) == 64
            ):
                jars.append(Jar(use, int(size), sha256, group, artifact, version))
            case _:
                raise Damaged(
                    f"jars.lock line {number} is not a jar: {line.strip()}",
                    hint=_RESTORE,
                )
    names = [jar.file_name for jar in jars]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise Damaged(
            f"jars.lock names {', '.join(sorted(repeated))} twice",
            hint=_RESTORE,
        )
    return tuple(jars)
