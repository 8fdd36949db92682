"""The rows that a pipeline's function computes from a decoded slice, for each of its tables.

All small slices run through a plan that is made once. Each large slice runs through a separate
plan.

If the function fails on a record, the record becomes a reject, unless the pipeline declares
`on_error="stop"`. Each commit of the slice stores the number of rejects. So the failing records
must be known before the first commit, and the function runs on each small slice before anything is
committed. On a large slice, the function runs during the commits, until the function fails for the
first time. Then this slice is folded again (slice.py). From then on, the function also runs before
the commits of large slices, and the function's rows are stored in files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from kappa.declare.pipeline import OnError, Pipeline
from kappa.declare.topic import Topic
from kappa.engine.function.contribution import Function, Prepared, columns_used, united
from kappa.engine.function.expired_rows import EXPIRED, refused_for
from kappa.engine.function.failing_records import Culprits, refused_culprits
from kappa.engine.function.failure import failure_of
from kappa.engine.function.spark_errors import SPARK_ERRORS
from kappa.engine.function.trial import Trial, Tries, TriesByJobs
from kappa.engine.read.source import LogSource
from kappa.engine.slice_rows import Columns, ContributedRows, CountsOf, SliceRows
from kappa.engine.spark.session_control import activate
from kappa.records.decode.outcome import decoded_columns
from kappa.state.files.address import delete_scratch
from kappa.state.table import TableBirth


class FunctionRows:
    """The user's function of a build, with the plan and the state that all slices share."""

    def __init__(self, pipeline: Pipeline, tables: Mapping[str, TableBirth], scratch: str) -> None:
        """Stores the pipeline and the build's tables.

        `scratch` is the path or URL of a folder for files of the current slice.
        """
        self._pipeline = pipeline
        self._tables = tables
        self._function = Function(pipeline, tables)
        self._prepared: Prepared | None = None
        # The context of the plan: a long catch-up begins in a JVM other than the JVM of its later
        # slices.
        self._context: SparkContext | None = None
        # By topic, from its first large slice on, the columns of its events that the function does
        # not use.
        self._unused: dict[str, frozenset[str]] = {}
        # The lock's holder may make the plan, or run the plan ahead.
        self._planning = threading.RLock()
        self._scratch = scratch
        self._computed_folder = f"{scratch}/contributed"
        self._refuses_expired = any(table.refuses_expired for table in pipeline.tables)
        # Made for the first slice that the function fails on.
        self._trial: Trial | None = None
        # Whether the function has failed on a record.
        self._has_failed = False

    def prepare(self, session: Callable[[], SparkSession]) -> None:
        """Plans the function in a background thread, and runs the plan without rows.

        Without this first run, the first small slice would take two seconds longer.
        """
        threading.Thread(target=self._prepare, args=(session,), name="prepare", daemon=True).start()

    def unused(self) -> dict[str, frozenset[str]]:
        """Returns, for each topic, the columns that the function is known not to use."""
        return dict(self._unused)

    def inputs(self) -> Iterator[tuple[Topic, Columns]]:
        """Yields each input topic of the function, with the columns passed to the function."""
        for topic in self._pipeline.input_topics:
            yield topic, self._pipeline.columns_of(topic)

    def of(self, records: SliceRows, spark: SparkSession) -> Mapping[str, ContributedRows]:
        """Returns the function's rows for a slice, by table.

        Returns an empty mapping if the slice has no input for the function.
        """
        rows = dict(self._whole(records, spark))
        rows.pop(EXPIRED, None)
        return rows

    def judges(self, records: SliceRows) -> bool:
        """Returns True if the function must run on this slice before any commit.

        This is required on all slices if rows expire. Unless `on_error="stop"` is declared, this is
        also required on small slices, and on all slices after the function's first failure on a
        record.
        """
        return self._refuses_expired or (
            self._rejects and (self._has_failed or records.is_judged_first)
        )

    def is_to_judge(self, error: Exception) -> bool:
        """Returns True if the slice that ended with `error` must be folded again.

        This is the case if `error` is the function's first failure on records, and the pipeline
        rejects such records. After this call has returned True, the function runs on every slice
        before any commit, so that the failing records are rejected.
        """
        if not self._rejects or self._has_failed or failure_of(error, self._pipeline) is None:
            return False
        self._has_failed = True
        return True

    def judged(
        self, records: SliceRows, spark: SparkSession, source: LogSource
    ) -> Mapping[str, ContributedRows]:
        """Rejects records of a slice, and returns the function's rows for the other records.

        The rows are mapped by table name.

        Records that contribute to expired rows are rejected. Unless `on_error="stop"` is declared,
        records on which the function fails are also rejected. Raises TooManyFail if so many records
        fail that the slice must be split.
        """
        computed = self._computed if self._has_failed else self._whole
        try:
            rows = dict(computed(records, spark))
        except SPARK_ERRORS as error:
            if not self._rejects:
                raise
            rows = self._without_culprits(records, spark, source, error)
        found = rows.pop(EXPIRED, None)
        expired = None if found is None else found.to_arrow()
        if expired is not None and expired.num_rows:
            tables = [self._tables[table.name] for table in self._pipeline.function_tables]
            records.reject(refused_for(expired, tables, source))
            rows = dict(computed(records, spark))
            rows.pop(EXPIRED, None)
        return rows

    def _without_culprits(
        self, records: SliceRows, spark: SparkSession, source: LogSource, error: Exception
    ) -> dict[str, ContributedRows]:
        """Rejects the records on which the function fails, and returns the other records' rows."""
        computed = self._computed if self._has_failed else self._whole
        while True:
            # Each round rejects some record, or raises.
            culprits = self.culprits(records, spark).all(error)
            records.reject(refused_culprits(culprits, self._pipeline, source))
            try:
                return dict(computed(records, spark))
            except SPARK_ERRORS as again:
                error = again

    @property
    def _rejects(self) -> bool:
        return self._pipeline.on_error is OnError.REJECT

    def _whole(self, records: SliceRows, spark: SparkSession) -> Mapping[str, ContributedRows]:
        """Runs the function on the slice, and returns the function's rows by table.

        If rows expire, the result also contains the expired rows, under the name EXPIRED. Returns
        an empty mapping if the slice has no input for the function.
        """
        if not self._pipeline.function_tables:
            return {}
        seen = records.counts()
        fed = any(
            one.decoded
            for topic in self._pipeline.input_topics
            for one in seen.get(topic.name, {}).values()
        )
        return records.apply(self, spark) if fed else {}

    def _computed(self, records: SliceRows, spark: SparkSession) -> Mapping[str, ContributedRows]:
        """Returns the same rows as `_whole`, after writing rows of Spark frames to files.

        So when this call returns, the function has run on each record, and does not run again for
        the commits.
        """
        return {
            name: own.kept_in(f"{self._computed_folder}/{name}")
            for name, own in self._whole(records, spark).items()
        }

    def culprits(self, records: SliceRows, spark: SparkSession) -> Culprits:
        """Returns an object that searches the slice for the records on which the function fails."""
        return Culprits(self._pipeline, lambda: self._tries(spark), records)

    @property
    def runs(self) -> int:
        """Returns how many times the function was run in the search for failing records.

        An increase shows that the slice makes progress. Only the runs by `Trial`, which need no
        Spark job, are counted.
        """
        return 0 if self._trial is None else self._trial.runs

    def clear(self) -> None:
        """Deletes the files with the function's rows, once the fold of the slice has ended."""
        delete_scratch(self._computed_folder)

    def frames(self, topics: Mapping[str, DataFrame], seen: CountsOf) -> dict[str, DataFrame]:
        """Calls the function on the frames of a large slice, and returns a frame for each table.

        `topics` contains a frame per topic. `seen` contains the counts of the slice.
        """
        inputs = self._pipeline.inputs.items()
        # A user's function is called by one thread at a time.
        with self._planning:
            rows = self._function.contributions(
                {name: united(topics[topic.name] for topic in own) for name, own in inputs}
            )
        self._note_unused(seen, rows.values())
        return rows

    def _note_unused(self, seen: CountsOf, rows: Iterable[DataFrame]) -> None:
        """Finds, once per topic, the columns that the function does not use.

        The decoding of later large slices leaves out these columns. `seen` contains the counts of
        the slice, and `rows` the function's frames.
        """
        topics = [
            topic
            for topic in self._pipeline.input_topics
            if topic.name in seen and topic.name not in self._unused
        ]
        if not topics:
            return
        try:
            read = list(chain.from_iterable(map(columns_used, rows)))
        except SPARK_ERRORS:
            # Running the frames reports their errors; this look could only have saved time.
            read = []
        # The newest rows are an event's rows, with all columns of the event.
        whole = {
            table.latest.name for table in self._pipeline.latest_tables if table.latest is not None
        }
        for topic in topics:
            columns = {name for name, _ in decoded_columns(topic)}
            # These two columns are written for the function alone.
            beside = frozenset({"_key", "_log_time"})
            # A plan does not name the topic of its files: all files that may be this topic's count
            # as the topic's own.
            used = [names for there, names in read if there <= columns]
            self._unused[topic.name] = (
                beside.union(column.name for column in topic.columns).difference(*used)
                if used and topic.name not in whole
                else frozenset()
            )

    def _prepare(self, session: Callable[[], SparkSession]) -> None:
        # The function's first slice reports the function's errors.
        with self._planning, suppress(Exception):
            if self._prepared is None and self._pipeline.function_tables:
                spark = session()
                activate(spark)
                self.plan(spark).run({})

    def _tries(self, spark: SparkSession) -> Iterator[Tries]:
        """Yields the ways to try the function on a few records, the fastest way first."""
        # Python's workers may be elsewhere alone.
        if (spark.sparkContext.master or "").startswith("local"):
            with self._planning:
                if self._trial is None or self._trial.context is not spark.sparkContext:
                    self._trial = Trial(spark, self._pipeline, self._function, self._scratch)
            yield self._trial
        yield TriesByJobs(self.plan(spark), self._pipeline)

    def plan(self, spark: SparkSession) -> Prepared:
        """Returns the plan for small slices, which is made once per Spark context."""
        with self._planning:
            if self._prepared is None or self._context is not spark.sparkContext:
                self._context = spark.sparkContext
                self._prepared = Prepared(
                    spark, self._pipeline, self._function, self._tables, self._scratch
                )
            return self._prepared
