"""Compiles Kappa's Java sources in a session's JVM, with the compiler that Spark contains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The class files are for Java 17, which Spark needs anyway.
_JAVA = 17
# Of each JVM, by its gateway. Py4J knows a method by the name of the class, so in one JVM it would
# call the methods of the first class of a name on objects of the second.
_compilers: WeakKeyDictionary[Any, dict[Path, Any]] = WeakKeyDictionary()


def compile_java(spark: SparkSession, source: Path) -> Any:
    """Compiles a Java source once per JVM, and returns the compiler object.

    The compiler object contains the bytecode of each class, and a class loader that loads the
    classes in this JVM only.
    """
    compilers = _compilers.setdefault(spark.sparkContext._gateway, {})  # noqa: SLF001  # as below
    if source in compilers:
        return compilers[source]
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()  # type: ignore[union-attr]  # noqa: SLF001  # there is no other door
    compiler.setSourceVersion(_JAVA)
    compiler.setTargetVersion(_JAVA)
    compiler.cook(source.read_text(encoding="utf-8"))
    compilers[source] = compiler
    return compiler
