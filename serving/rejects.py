"""The rejects: records that were not valid, with raw bytes, place in the log and reason. Nothing is ever dropped silently."""

from __future__ import annotations

from kappa.errors import UsageError
from kappa.store import Store
from serving.catalog import Snapshot
from serving.query import Reader, Rows, ask

_COLUMNS = '"topic", "partition", "offset", "timestamp", "reason", "detail", "key", "value"'


def newest_rejects(store: Store, pipeline: str | None, *, limit: int | None, lease_seconds: float = 60.0) -> Rows:
    """The newest rejects of one pipeline, or of all, newest first; a limit of None is none.

    Raises UsageError where no pipeline of that name is served.
    """

    def question(reader: Reader, snapshot: Snapshot) -> Rows:
        if pipeline is not None and pipeline not in snapshot.serving:
            raise UsageError(
                f"no pipeline {pipeline} is served", hint=f"there are {', '.join(sorted(snapshot.serving))}" if snapshot.serving else "nothing is served yet: kappa deploy"
            )
        if not snapshot.serving:
            return Rows(("pipeline", *_COLUMNS.replace('"', "").split(", ")), ("VARCHAR",) * 9, ())
        # A served pipeline's name is letters, digits and underscores.
        which = "" if pipeline is None else f"where pipeline = '{pipeline}'"
        return reader.rows(
            f'select pipeline, {_COLUMNS} from main.rejects {which} order by "timestamp" desc, "topic", "partition", "offset" desc {"" if limit is None else f"limit {limit}"}'
        )

    return ask(store, question, lease_seconds=lease_seconds)
