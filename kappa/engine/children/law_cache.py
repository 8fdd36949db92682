"""A cache that records which tests of the law of slices with large slices have passed.

Large slices of a sample test Kappa's own code: decoding on Spark workers, the plan over files, and
the writers of large commits. (Small slices, at each deploy, test the pipeline's code.) How Kappa
computes large slices depends on Kappa's code, the versions of the libraries and of Java, the
declared topics and tables, and the shape of the plan. So large slices are tested again only if one
of these changes. The shape is the analysed plan without the values of literals.

A plan does not contain the code of Python functions. So functions with a UDF, and ordered folds
with a user's step, are always tested. If the large slices leave a table empty, the test has proved
nothing, and is not cached.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from kappa.base.temporary_folders import user_cache
from kappa.engine.spark.function_plan import class_of, nested
from kappa.engine.spark.worker_archive import kappa_digest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kappa.declare.table import Table

_LIBRARIES = ("pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow", "numpy", "numba")
_FOLDER = "law"
# The parts of a plan that are other numbers each time: of columns, of frames, and of objects.
_NUMBERS = re.compile(r"#\d+L?|@[0-9a-f]+")
_NUMBERED = frozenset({"exprId", "resultId", "id", "jvmId", "rdd", "planId"})
# Classes of expressions that run Python.
_PYTHON = "Python"


def shape_of(plans: Mapping[str, Sequence[Any]], tables: Iterable[Table]) -> str:
    """Returns one digest for the analysed plans (TreeNode.toJSON) of a function's tables. Pure.

    The values of literals do not change the digest. Returns "" if a plan runs Python, or if an
    ordered fold of the `tables` has a user's step.
    """
    if any(table.ordered is not None and table.ordered.step is not None for table in tables):
        return ""
    nodes = [node for plan in plans.values() for node in plan]
    if any(_PYTHON in class_of(each) for node in nodes for each in (node, *nested(node))):
        return ""
    return _digest([(name, _without_values(plan)) for name, plan in sorted(plans.items())])


def large_slices_key(spark: SparkSession, shape: str, declared: str) -> str | None:
    """Returns a digest of everything that decides how large slices are computed.

    `shape` is the result of `shape_of`, and `declared` is a digest of the topics and tables.
    Returns None if `shape` is "", since then the computation runs Python code of the pipeline.
    """
    jvm = spark._jvm  # noqa: SLF001  # PySpark has no other way to the JVM
    assert jvm is not None, "the session's JVM runs"
    java = str(jvm.System.getProperty("java.vm.version"))
    libraries = [f"{name} {version(name)}" for name in _LIBRARIES]
    return _digest([kappa_digest(), java, *libraries, declared, shape]) if shape else None


def has_held(key: str) -> bool:
    """Returns True if large slices with this key have passed the test of the law of slices.

    The cache contains only tests on this machine.
    """
    path = _path(key)
    return path is not None and path.exists()


def remember_held(key: str) -> None:
    """Records that large slices with this key have passed the test of the law of slices.

    An error of the disk is ignored, for example if the disk is full.
    """
    path = _path(key)
    if path is not None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def _path(key: str) -> Path | None:
    try:
        return user_cache(_FOLDER) / key
    except RuntimeError:
        # A user without a home folder has no cache.
        return None


def _without_values(part: Any) -> Any:
    match part:
        case dict():
            is_literal = class_of(part) == "Literal"
            return {
                name: _without_values(value)
                for name, value in part.items()
                if name not in _NUMBERED and not (is_literal and name == "value")
            }
        case list():
            return [_without_values(each) for each in part]
        case str():
            return _NUMBERS.sub("", part)
        case _:
            return part


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
