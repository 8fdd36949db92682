"""An importer of a project's modules from one folder: the working tree or a code snapshot.

Only one folder is open at a time. When another folder is opened, the modules of the previous folder
are removed from `sys.modules`, so that all modules are loaded again. Nothing is added to
`sys.path`, since a `pipelines/calendar.py` in `sys.path` would break pandas. No bytecode is stored:
its time stamp has whole seconds, and a user may edit a file twice within one second.

PySpark asks the JVM for the meaning of a type such as "int" as soon as a decorator `@udf("int")`
runs. But a project is also loaded by processes without a JVM (the command line, Spark's Python
workers), and by a job while its session starts. So this module parses the types of UDFs itself. It
asks Spark only for types that it cannot parse, and only if a session exists.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType
from typing import assert_never

import pyspark.sql.udf
from pyspark import SparkContext
from pyspark.sql import types as T

from kappa.base.errors import DeclarationError
from kappa.code.sources import PIPELINES, Sources
from kappa.declare.project_files import open_named_files
from kappa.declare.values.columns import (
    Array,
    Column,
    Decimal,
    Scalar,
    Struct,
    Type,
    parse_columns,
    parse_type,
)

# Spark's Python workers read this variable (engine/spark/workers.py), to import the same files.
FOLDER_VARIABLE = "KAPPA_SOURCES"


def open_sources(sources: Sources) -> None:
    """Makes the files of `sources` importable as the project's modules.

    This process, and the Python workers of Spark that it starts afterwards, import these files.
    Project modules that were imported before are removed from `sys.modules`.
    """
    # This import takes half a second: only loading a project pays, whose files import PySpark.

    for importer in [each for each in sys.meta_path if isinstance(each, _Importer)]:
        sys.meta_path.remove(importer)
        _forget_modules(importer.given)
    _forget_modules(_stale_modules(sources))
    sys.meta_path.insert(0, _Importer(sources))
    importlib.invalidate_caches()
    open_named_files(sources.folder)
    read_types_without_session()
    os.environ[FOLDER_VARIABLE] = str(sources.folder)


class _Importer(MetaPathFinder):
    """A finder of the modules of a `Sources`, which Python asks before all others."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.given: set[str] = set()

    # importlib gives the arguments.
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        place = self._sources.locate_module(fullname)
        if place is None:
            return None
        self.given.add(fullname)
        if place.file is None:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(place.folder)]
            return spec
        within = None if place.folder is None else [str(place.folder)]
        return spec_from_file_location(
            fullname,
            place.file,
            loader=_Loader(fullname, str(place.file)),
            submodule_search_locations=within,
        )


class _Loader(SourceFileLoader):
    """A loader that compiles a module from its source at each import."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.get_data(path), path, "exec", dont_inherit=True)


def _stale_modules(sources: Sources) -> set[str]:
    """Returns the names of the loaded modules that an import from `sources` must load again.

    These are the modules of the package `pipelines`, and all modules whose files are in the folder
    of `sources`.
    """
    within = f"{sources.folder}{os.sep}"
    return {
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == PIPELINES
        or (
            isinstance(file := getattr(module, "__file__", None), str)
            and file.startswith(within)
            and sources.locate_module(name) is not None
        )
    }


def _forget_modules(names: set[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)


_SCALARS: dict[str, T.DataType] = {
    "string": T.StringType(),
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "binary": T.BinaryType(),
}
# The function by which PySpark reads DDL texts; it has no public name.
_READER = "_parse_datatype_string"
_ask_spark: Callable[[str], T.DataType] = vars(pyspark.sql.udf)[_READER]


def read_types_without_session() -> None:
    """Makes PySpark parse the types of UDFs with `read_type`, in this process.

    So PySpark can parse these types without a Spark session.
    """
    setattr(pyspark.sql.udf, _READER, read_type)


def read_type(text: str) -> T.DataType:
    """Parses a DDL text, such as "int", to a Spark type.

    Raises ValueError if only Spark can parse the text and no session is active.
    """
    plain = text.strip().lower()
    if plain in _SCALARS:
        return _SCALARS[plain]
    try:
        return spark_type(parse_type(text))
    except DeclarationError:
        columns = _parsed_columns(text)
    if not columns or any(column.default is not None for column in columns):
        # Every public way to ask for the context starts a context.
        if SparkContext._active_spark_context is not None:  # noqa: SLF001
            return _ask_spark(text)
        raise ValueError(
            f'the type "{text}" cannot be read before Spark runs: '
            "give it as an object of pyspark.sql.types, such as IntegerType()"
        )
    return _struct_type(columns)


def _parsed_columns(text: str) -> tuple[Column, ...]:
    try:
        return parse_columns(text)
    except DeclarationError:
        return ()


def spark_type(kind: Type) -> T.DataType:
    """Returns the Spark type that corresponds to a type of Kappa."""
    match kind:
        case Scalar(name):
            return _SCALARS[name]
        case Decimal(precision, scale):
            return T.DecimalType(precision, scale)
        case Array(element):
            return T.ArrayType(spark_type(element))
        case Struct(fields):
            return _struct_type(fields)
        case _:
            assert_never(kind)


def _struct_type(columns: tuple[Column, ...]) -> T.StructType:
    return T.StructType(
        [T.StructField(column.name, spark_type(column.type), column.nullable) for column in columns]
    )
