"""The runs of a function's plan on a few rows at a time, in the session's own JVM.

The search for failing records (failing_records.py) needs at least one run for each failing record,
and a producer may send hundreds of thousands of such records. A run as a Spark job takes tens of
milliseconds. A run without a job, by the Java class RowTrial, takes about one millisecond. If the
function uses Python workers, a run takes a hundred milliseconds, since a Python worker exits when
it raises an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from kappa.declare.pipeline import Pipeline
from kappa.engine.fold.file_scan import Leaf, session_of_leaves
from kappa.engine.function.contribution import Function, Prepared, united
from kappa.engine.function.failure import Failure, failure_in, failure_of, line_of_site
from kappa.engine.function.spark_errors import SPARK_ERRORS
from kappa.engine.spark.java_compiler import compile_java

_SOURCE = Path(__file__).with_name("RowTrial.java")


class Tries(Protocol):
    """A way to run a function on ranges of rows."""

    def put(self, topic: str, rows: pa.Table) -> None:
        """Stores rows of a topic. `failure` then tries the function on ranges of these rows."""
        ...

    def failure(self, start: int, end: int) -> Failure | None:
        """Returns the function's failure on the rows in `[start, end)`, or None if it succeeds.

        The rows are those of the last call of `put`. Tables are computed one after the other. So if
        a record causes several errors, each call returns the same error.
        """
        ...


class TriesByJobs:
    """A way to run a function on ranges of rows by Spark jobs.

    This way also works in a session whose workers are on other machines.
    """

    def __init__(self, prepared: Prepared, pipeline: Pipeline) -> None:
        self._prepared = prepared
        self._pipeline = pipeline
        self._topic, self._rows = "", pa.table({})

    def put(self, topic: str, rows: pa.Table) -> None:
        """Stores rows of a topic in this process."""
        self._topic, self._rows = topic, rows

    def failure(self, start: int, end: int) -> Failure | None:
        """Runs the plan for small slices on the rows in `[start, end)`, as Spark jobs.

        Returns the function's failure, or None if the function succeeds. Raises Spark's error if
        the function did not cause the error.
        """
        try:
            self._prepared.run_apart({self._topic: self._rows.slice(start, end - start)})
        except SPARK_ERRORS as error:
            found = failure_of(error, self._pipeline)
            if found is None:
                raise
            return found
        return None


class Trial:
    """A way to run a function on ranges of rows in the session's own JVM, without a Spark job."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, function: Function, folder: str
    ) -> None:
        """Plans the function, with inputs whose rows `put` can replace.

        `folder` is a path or URL for the rows on which the function is tried.
        """
        self._pipeline = pipeline
        self.context = spark.sparkContext
        # How many runs there were: each is progress.
        self.runs = 0
        session = session_of_leaves(spark)
        loader = compile_java(spark, _SOURCE).getClassLoader()
        self._java: Any = loader.loadClass("kappa.RowTrial").getConstructors()[0].newInstance(None)
        self._leaves = {
            topic.name: Leaf(f"{folder}/tried/{topic.name}.parquet", pipeline.columns_of(topic))
            for topic in pipeline.input_topics
        }
        self._rows: Mapping[str, DataFrame] = {
            name: leaf.frame(session) for name, leaf in self._leaves.items()
        }
        self._session = session
        context = spark.sparkContext._jsc.sc()  # noqa: SLF001  # PySpark has no other door to a plan's parts
        self._inputs = {name: self._java.addInput(context) for name in self._leaves}
        frames = {
            name: DataFrame(
                session._jsparkSession.internalCreateDataFrame(  # noqa: SLF001  # as above
                    self._inputs[name],
                    self._rows[name]._jdf.schema(),  # noqa: SLF001  # as above
                    False,  # noqa: FBT003  # it is no stream
                ),
                session,
            )
            for name in self._leaves
        }
        inputs = {
            parameter: united(frames[topic.name] for topic in topics)
            for parameter, topics in pipeline.inputs.items()
        }
        for frame in function.contributions(inputs, one_partition=True).values():
            self._java.addPlan(frame._jdf.queryExecution().executedPlan().execute())  # noqa: SLF001  # as above

    def put(self, topic: str, rows: pa.Table) -> None:
        """Writes the rows to a file, and makes the JVM read the file once."""
        if not self._leaves[topic].put(rows):
            self._rows = {**self._rows, topic: self._leaves[topic].frame(self._session)}
        plan = self._rows[topic]._jdf.queryExecution().executedPlan()  # noqa: SLF001  # as above
        self._java.put(self._inputs[topic], plan.executeCollect())
        self._topic = topic

    def failure(self, start: int, end: int) -> Failure | None:
        """Runs the function's plans on the rows in `[start, end)`, in this thread.

        Returns the function's failure, or None if the function succeeds. Raises Py4JError if the
        function did not cause the error.
        """
        self.runs += 1
        found = self._java.tried(self._inputs[self._topic], start, end)
        if found is None:
            return None
        text, site = found
        failure = failure_in(text, line_of_site(site), self._pipeline)
        if failure is None:
            raise Py4JError(text)
        return failure
