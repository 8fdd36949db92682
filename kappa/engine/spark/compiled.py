"""Java sources of ours, compiled in a session's JVM. The compiler comes with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The class files are for Java 17, which Spark needs anyway.
_JAVA = 17


def compile_java(spark: SparkSession, source: Path) -> Any:
    """Compiles a Java source, and returns the compiler.

    The compiler has the bytecode of each class, and a loader of the classes for this JVM alone.
    """
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()  # type: ignore[union-attr]  # noqa: SLF001  # there is no other door
    compiler.setSourceVersion(_JAVA)
    compiler.setTargetVersion(_JAVA)
    compiler.cook(source.read_text(encoding="utf-8"))
    return compiler
