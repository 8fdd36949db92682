"""A context manager that records where a function calls methods, and refuses forbidden calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from kappa.base.errors import DeclarationError
from kappa.engine.spark.function_plan import TELLING_CALLS

# Calls that run a job, or keep something: the answer would depend on a single slice.
_LOOKING = (
    *(
        "collect",
        "count",
        "first",
        "head",
        "take",
        "tail",
        "show",
        "isEmpty",
        "toPandas",
        "toArrow",
        "toLocalIterator",
        "toJSON",
        "foreach",
        "foreachPartition",
    ),
    *(
        "approxQuantile",
        "corr",
        "cov",
        "crosstab",
        "freqItems",
        "cache",
        "persist",
        "checkpoint",
        "localCheckpoint",
        "writeTo",
    ),
)
_LOOKING_PROPERTIES = ("rdd", "write", "writeStream")


class Watch:
    """A context manager that watches the calls of a pipeline's function.

    For each method in TELLING_CALLS (defined in function_plan.py), the context manager records the
    source line of the first call. Within the `with` block, a method that reads rows or stores rows,
    for example `collect` or `cache`, raises DeclarationError when it is called.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sites: dict[str, str] = {}
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self.sites.clear()
        for kind in (ClassicDataFrame, ClassicColumn, SparkSession):
            for name in TELLING_CALLS - set(_LOOKING_PROPERTIES):
                self._replace(kind, name, self._traced)
        for name in _LOOKING:
            self._replace(ClassicDataFrame, name, self._refusing)
        for name in _LOOKING_PROPERTIES:
            self._replace(
                ClassicDataFrame, name, lambda each, _: property(self._refusing(each, None))
            )

    def __exit__(self, *error: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace(self, kind: type, name: str, make: Callable[[str, Any], Any]) -> None:
        before = getattr(kind, name, None)
        if before is None:
            return
        own = name in vars(kind)
        original = vars(kind).get(name)
        setattr(kind, name, make(name, before))
        self._undo.append(lambda: setattr(kind, name, original) if own else delattr(kind, name))

    def _traced(self, name: str, before: Any) -> Any:
        def traced(*arguments: Any, **named: Any) -> Any:
            site = self._site()
            if site is not None:
                self.sites.setdefault(name, site)
            return before(*arguments, **named)

        return traced

    def _refusing(self, name: str, _before: Any) -> Any:
        def refusing(*_arguments: Any, **_named: Any) -> Any:
            raise DeclarationError(
                f"{self._site()}: the function looks at its rows by {name}, and what it saw"
                " would be of one slice only",
                hint="return the frames as they are: Kappa runs them; what concerns many rows is a"
                " fold or a View",
            )

        return refusing

    def _site(self) -> str | None:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the documented way to a caller's line
        while frame is not None:
            if Path(frame.f_code.co_filename).is_relative_to(self.folder):
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return None
