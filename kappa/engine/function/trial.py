"""A function's plan, run over few rows at a time in the session's own JVM.

The search for failing records (culprits.py) needs a run for each of them. As a job of Spark's, a
run takes tens of milliseconds, and a producer may send hundreds of thousands of such records.
Without a job a run takes about one millisecond (RowTrial.java). A Python worker ends when it
raises, so with such workers a run takes a hundred milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from kappa.declare.pipeline import Pipeline
from kappa.engine.fold.leaf import Leaf, session_of_leaves
from kappa.engine.function.contribution import Function, Prepared, united
from kappa.engine.function.failure import Failure, failure_in, failure_of, line_of_site
from kappa.engine.function.trouble import SPARK_ERRORS
from kappa.engine.spark.compiled import compile_java

_SOURCE = Path(__file__).with_name("RowTrial.java")


class Tries(Protocol):
    """The runs of a function over ranges of rows."""

    def put(self, topic: str, rows: pa.Table) -> None:
        """Puts the rows; the function is then tried on ranges of them."""
        ...

    def failure(self, start: int, end: int) -> Failure | None:
        """Returns the failure of the function on a range of the rows, or None.

        Tables are computed one after the other. So if a record has several errors, the same error
        is returned each time.
        """
        ...


class TriesByJobs:
    """Runs of a function as jobs of Spark, for a session whose workers are elsewhere."""

    def __init__(self, prepared: Prepared, pipeline: Pipeline) -> None:
        self._prepared = prepared
        self._pipeline = pipeline
        self._topic, self._rows = "", pa.table({})

    def put(self, topic: str, rows: pa.Table) -> None:
        """Keeps the rows here."""
        self._topic, self._rows = topic, rows

    def failure(self, start: int, end: int) -> Failure | None:
        """Runs the plan of small slices."""
        try:
            self._prepared.run_apart({self._topic: self._rows.slice(start, end - start)})
        except SPARK_ERRORS as error:
            found = failure_of(error, self._pipeline)
            if found is None:
                raise
            return found
        return None


class Trial:
    """Runs of a function in this session's JVM, without a job."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, function: Function, folder: str
    ) -> None:
        """Plans the function over inputs that `put` fills.

        `folder`, a path or URL, takes the rows that are tried.
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
        """Lets the JVM read the rows, once."""
        if not self._leaves[topic].put(rows):
            self._rows = {**self._rows, topic: self._leaves[topic].frame(self._session)}
        plan = self._rows[topic]._jdf.queryExecution().executedPlan()  # noqa: SLF001  # as above
        self._java.put(self._inputs[topic], plan.executeCollect())
        self._topic = topic

    def failure(self, start: int, end: int) -> Failure | None:
        """Runs the plans in this thread. Raises Py4JError if the function is not to blame."""
        self.runs += 1
        found = self._java.tried(self._inputs[self._topic], start, end)
        if found is None:
            return None
        text, site = found
        failure = failure_in(text, line_of_site(site), self._pipeline)
        if failure is None:
            raise Py4JError(text)
        return failure
