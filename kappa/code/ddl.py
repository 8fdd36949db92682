"""Types of UDFs, read without a Spark session, for a `@udf("int")` at the top of a file.

PySpark asks the JVM for the meaning of "int" as soon as the decorator runs. But a project is also
loaded by processes without a JVM (the command line, Spark's Python workers), and by a job while the
session begins. So this module reads the text. The module asks Spark only for types that it cannot
read, and only if a session exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import pyspark.sql.udf
from pyspark import SparkContext
from pyspark.sql import types as T  # its usual name

from kappa.base.errors import DeclarationError
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
    """Makes this process read the types of UDFs whether or not a session exists."""
    setattr(pyspark.sql.udf, _READER, read_type)


def read_type(text: str) -> T.DataType:
    """Returns the type that a DDL text means.

    Raises ValueError if reading the text needs a session and none is active.
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
    """Returns Spark's type for a type of Kappa."""
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
