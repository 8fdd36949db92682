"""The parallel commits of a slice to several tables.

The commits also run beside other work of the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from pyspark.sql import DataFrame

from kappa.engine.read.rows import Rows, RowsInFiles
from kappa.engine.write.commit import TableWriter
from kappa.state.mark import Mark


class Commits:
    """The threads that commit, one thread per table."""

    def __init__(self, at_once: int) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="commits")

    @contextmanager
    def beside(
        self, writers: Sequence[TableWriter], rows: Mapping[str, Rows], mark: Mark
    ) -> Iterator[None]:
        """Commits a slice to these tables beside the block.

        All commits are done when the block ends. Rows that Spark holds or may have to merge are
        committed before the block begins.
        """
        beside: list[Future[str]] = []
        try:
            for writer in writers:
                own = rows.get(writer.birth.name)
                if isinstance(own, DataFrame | RowsInFiles):
                    writer.commit(own, mark)
                else:
                    beside.append(self._threads.submit(writer.commit, own, mark))
            yield
        finally:
            # A table that is still being written may not be touched.
            wait(beside)
        for commit in beside:
            commit.result()

    def close(self) -> None:
        """Ends the threads, and drops commits that have not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)
