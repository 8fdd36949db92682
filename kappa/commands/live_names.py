"""The names that complete a command line: of the root, and of the project's files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kappa.code.names import declared_names
from kappa.state.names import RootNames, read_names

_FILE = "kappa.toml"
_SHOWN = 50


@dataclass(frozen=True)
class LiveNames:
    """The names of a project and its root, each read when first asked for."""

    project: Path | None
    root: Path | None

    @classmethod
    def around(cls, folder: Path, flags: Mapping[str, str]) -> LiveNames:
        """Finds the project and the root for a command that is typed in a folder."""
        start = (folder / Path(flags.get("--project", ".")).expanduser()).absolute()
        project = next((each for each in (start, *start.parents) if (each / _FILE).is_file()), None)
        if project is None:
            return cls(None, None)
        by_variable = next(
            (value for name, value in os.environ.items() if name.upper() == "KAPPA__ROOT"), None
        )
        given = flags.get("--root") or by_variable or _root_in(project / _FILE)
        return cls(project, None if "://" in given else project / given)

    @cached_property
    def _in_root(self) -> RootNames:
        return RootNames() if self.root is None else read_names(self.root)

    @cached_property
    def _declared(self) -> set[tuple[str, str]]:
        return set() if self.project is None else declared_names(self.project)

    def pipelines(self) -> Iterator[tuple[str, str]]:
        """Yields the pipelines that are declared or serve."""
        for name in sorted({*self._in_root.serving, *self._names("pipeline")}):
            build = self._in_root.serving.get(name)
            yield name, f"pipeline, build {build}" if build else "pipeline, not served"

    def tables(self) -> Iterator[tuple[str, str]]:
        """Yields the tables and views that serve."""
        for name, pipeline in sorted(self._in_root.tables()):
            yield name, f"table of {pipeline}"

    def topics(self) -> Iterator[tuple[str, str]]:
        """Yields the topics that are declared, or that a serving build uses."""
        for name in sorted({*self._in_root.topics(), *self._names("topic")}):
            yield name, "topic"

    def builds(self) -> Iterator[tuple[str, str]]:
        """Yields the builds that the root has, those that serve first."""
        serving = {build: name for name, build in self._in_root.serving.items()}
        for build in sorted(self._in_root.builds, key=lambda each: (each not in serving, each)):
            yield build, "build, serves" if build in serving else "build"

    def rollouts(self) -> Iterator[tuple[str, str]]:
        """Yields the newest rollouts by number, the newest first."""
        for number, pipeline in self._in_root.rollouts[:_SHOWN]:
            yield str(number), f"rollout of {pipeline}"

    def generations(self) -> Iterator[tuple[str, str]]:
        """Yields the newest generations by number, the newest first."""
        newest = self._in_root.generation
        for number in range(newest, max(0, newest - _SHOWN), -1):
            yield str(number), "generation"

    def alerts(self) -> Iterator[tuple[str, str]]:
        """Yields the alerts of what serves."""
        for name in sorted({*self._in_root.alerts()}):
            yield name, "alert"

    def processes(self) -> Iterator[tuple[str, str]]:
        """Yields the processes of the platform that have written a log."""
        logs = [] if self.root is None else sorted((self.root / "logs").glob("*.log"))
        for path in logs:
            yield path.stem, "log"

    def _names(self, kind: str) -> set[str]:
        return {name for each, name in self._declared if each == kind}


def _root_in(file: Path) -> str:
    """Returns the root that a kappa.toml names, or the default."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("root")
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, str) else ".kappa"
