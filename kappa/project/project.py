"""The project as an object: the functions of the command line, for programs and notebooks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kappa.project.project_plan import (
    ProjectPlan,
    Showing,
    follow_to_end,
    for_each_rollout,
    observed_for,
    show_nothing,
)
from kappa.replay.status.context import ProjectContext

if TYPE_CHECKING:
    from kappa.kafka.producer import ProducedRecord
    from kappa.project.answers import PinnedTables, QueryResult
    from kappa.project.report import Report
    from kappa.replay.rollout.plan.branch import Branching
    from kappa.replay.rollout.plan.finding import Allowances
    from kappa.replay.rollout.rollout import Rollout
    from kappa.replay.rollout.state import State
    from kappa.serving.outlets.changes.change_set import ChangeSet
    from kappa.serving.outlets.changes.cursor import Cursor
    from kappa.serving.outlets.changes.filter import Filter
    from kappa.serving.outlets.changes.follower import Follower
    from kappa.serving.outlets.export.exporter import Exporter
    from kappa.serving.query.pin.moments import Past
    from kappa.serving.query.statements import SqlStatement
    from kappa.state.offsets import Offsets

# ruff: noqa: PLC0415  # importing the package imports what a call needs, and nothing else

_WAIT_SECONDS = 1.0
# Many times the time of a slice, and long enough to wake a resting build.
_SHOWN_SECONDS = 30.0
# A resting build first starts its job, which may take 45 s (engine.hung_seconds).
_TOGETHER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Produced:
    """The result of sending records, after the broker has acknowledged all of them.

    `count` is the number of records. `offsets` contains, for each partition that received records,
    the offset after the last record. `token` is the write token with which a query can wait for the
    records, or None if no record was sent.
    """

    count: int
    offsets: Offsets
    token: str | None


class Project:
    """A project with its root and its broker. Programs open a project with `Project.open`.

    Methods that only read (`query`, `tables`, `status`) work without a running platform. Methods
    that change something (`deploy`, `stage`, `promote`, `undo`) need `kappa up`. All errors are of
    the class `kappa.base.errors.KappaError`, with a message of one sentence, and a `hint` for the
    next step.
    """

    def __init__(self, here: ProjectContext) -> None:
        """Creates the object from the context of a command.

        Programs call `Project.open` instead.
        """
        self._here = here

    @classmethod
    def open(cls, path: str | Path = ".", *, root: str | None = None) -> Self:
        """Opens the project whose kappa.toml is in the folder `path`, or in a folder above.

        `root` overrides the root in kappa.toml. Raises SettingsError if there is no kappa.toml, or
        if kappa.toml cannot be read.

        Example:
            project = Project.open("shop")
        """
        here = ProjectContext(Path(path), root)
        _ = here.settings
        return cls(here)

    @property
    def folder(self) -> Path:
        """The folder that contains kappa.toml."""
        return self._here.settings.project

    # Changes

    def plan(
        self,
        *pipelines: str,
        again: bool = False,
        allow: Iterable[str] = (),
        allow_breaking: bool = False,
        accept_gap: bool = False,
    ) -> ProjectPlan:
        """Plans a deploy of the given `pipelines`, or of all declared pipelines. Changes nothing.

        With `again`, new builds are also planned for unchanged pipelines. `allow` permits steps
        that the plan would otherwise refuse: each element is "NAME=REASON", with the name of the
        refusal that the plan shows. `allow_breaking` permits changes that may break readers, and
        `accept_gap` permits topics whose oldest records have been deleted. Raises Unreachable if no
        broker is known.

        Example:
            plan = project.plan("web")
            for step in plan.steps:
                print(step.text, [each.text for each in step.readers])
        """
        from kappa.replay.rollout.plan.finding import parse_allowances

        accepting = parse_allowances(gap=accept_gap, breaking=allow_breaking, allow=allow)
        return self.plan_accepting(pipelines, again=again, accepting=accepting)

    def plan_accepting(
        self,
        pipelines: Sequence[str],
        *,
        accepting: Allowances,
        again: bool = False,
        branching: Branching | None = None,
        showing: Showing = show_nothing,
    ) -> ProjectPlan:
        """Plans a deploy as `plan` does, for callers that have already parsed the allowances.

        `accepting` contains the refusals that the user permits. With `branching`, plans branches of
        the serving builds. `showing` displays the progress of planning.
        """
        from kappa.replay.rollout.plan.make_plan import make_plan

        observed = observed_for(self._here, pipelines, showing)
        made = make_plan(
            observed, only=pipelines, again=again, accepting=accepting, branching=branching
        )
        return ProjectPlan(self._here, made, observed, tuple(pipelines), accepting)

    def plan_retry(self, pipeline: str, *, showing: Showing = show_nothing) -> ProjectPlan:
        """Plans the last rollout of a pipeline again, after it failed or was abandoned.

        `showing` displays the progress of planning.
        """
        from kappa.replay.rollout.plan.finding import Allowances
        from kappa.replay.rollout.plan.retry import plan_again

        observed = observed_for(self._here, (pipeline,), showing)
        made = plan_again(observed, pipeline)
        return ProjectPlan(self._here, made, observed, (pipeline,), Allowances())

    def read_plan(self, file: str | Path, *, showing: Showing = show_nothing) -> ProjectPlan:
        """Reads a saved plan, and computes the plan again for the present state of the project.

        Raises Conflict if the project has changed so that the saved plan is out of date; the error
        lists the changes. `showing` displays the progress of planning.
        """
        from kappa.replay.rollout.plan.saved_plan import SavedPlan

        file = Path(file)
        saved = SavedPlan.read(file)
        observed = observed_for(self._here, saved.only, showing)
        made = saved.plan_again(file, observed)
        return ProjectPlan(self._here, made, observed, saved.only, saved.accepting)

    def stage(
        self,
        *pipelines: str,
        reason: str = "",
        allow: Iterable[str] = (),
        allow_breaking: bool = False,
        accept_gap: bool = False,
    ) -> tuple[Rollout, ...]:
        """Begins the rollouts of a deploy, and returns them without waiting.

        Kappa builds and verifies candidates, which then wait for a `promote`. `pipelines`, `allow`,
        `allow_breaking` and `accept_gap` are as for `plan`; `reason` is stored in the history.
        Returns an empty tuple if nothing changes. If the plan has refusals, raises the error of the
        first refusal.

        Example:
            for rollout in project.stage("web", reason="count bots apart"):
                print(rollout.number, rollout.build)
        """
        ids = self._begin(
            pipelines, reason, allow, auto_promote=False, breaking=allow_breaking, gap=accept_gap
        )
        return self._rollouts(ids)

    def deploy(
        self,
        *pipelines: str,
        reason: str = "",
        allow: Iterable[str] = (),
        allow_breaking: bool = False,
        accept_gap: bool = False,
        timeout: float | None = None,
    ) -> tuple[Rollout, ...]:
        """Deploys declared pipelines without asking a question, and waits until they serve.

        Each new build replays while the serving builds continue. The build is then verified, and is
        promoted if it passes. `pipelines`, `reason`, `allow`, `allow_breaking` and `accept_gap` are
        as for `stage`; `timeout` is in seconds. If a rollout does not serve, raises the error of
        this rollout, or of the first such rollout. Then the build that served before continues to
        serve.

        Example:
            project.deploy(reason="first deploy")
        """
        ids = self._begin(
            pipelines, reason, allow, auto_promote=True, breaking=allow_breaking, gap=accept_gap
        )
        return self._served(ids, timeout)

    def promote(
        self, *pipelines: str, reason: str = "", timeout: float | None = None
    ) -> tuple[Rollout, ...]:
        """Promotes candidates that have passed their verification, together in one generation.

        `pipelines` are names of pipelines, or numbers of rollouts as text. Without `pipelines`, the
        only ready candidate is promoted. `reason` and `timeout` are as for `deploy`. Returns the
        rollouts of the candidates after they serve. Raises UsageError if no candidate is ready. If
        a rollout does not serve, raises the error of this rollout.

        Example:
            project.promote("web", reason="reviewed by Ada")
        """
        return self._served(
            self.ask_promote(self.ready_rollouts(*pipelines), reason=reason), timeout, by_yes=True
        )

    def undo(
        self,
        pipeline: str | None = None,
        *,
        to: int | None = None,
        reason: str = "",
        timeout: float | None = None,
    ) -> Rollout:
        """Switches a `pipeline` back to the build that served before, and waits until it serves.

        If `pipeline` is not given, the only pipeline that can be undone is used. If `to` is given,
        the pipeline switches to the build of this earlier generation, which must still be kept.
        `reason` and `timeout` are as for `deploy`.

        Example:
            project.undo("web", reason="counts are too low")
        """
        self._here.must_run()
        (ended,) = self._served((self.ask_undo(pipeline, to=to, reason=reason),), timeout)
        return ended

    def ask_undo(
        self,
        pipeline: str | None,
        *,
        to: int | None = None,
        reason: str = "",
        seen: State | None = None,
    ) -> int:
        """Records a request for an undo, and returns the id of the rollout that carries it out.

        `pipeline` and `to` are as for `undo`. `seen` is the state of the rollouts on which the user
        based the decision.
        """
        from kappa.replay.rollout.operator_requests import ask_undo

        return ask_undo(self._here.store, pipeline, to=to, seen=seen, reason=reason).number

    def ready_rollouts(self, *pipelines: str) -> tuple[Rollout, ...]:
        """Returns the candidates that `promote` would promote with the same arguments."""
        from kappa.replay.rollout.operator_requests import ready_rollouts

        self._here.must_run()
        return ready_rollouts(self._here.state(), *pipelines)

    def ask_promote(self, ready: Iterable[Rollout], *, reason: str = "") -> tuple[int, ...]:
        """Records the user's approval of candidates. Returns the ids of their rollouts."""
        from kappa.replay.rollout.operator_requests import ask_promote
        from kappa.state.journal.events import PromoteAsked

        seen = [rollout.id for rollout in ready]
        asked = ask_promote(self._here.store, seen=seen, reason=reason).event
        assert isinstance(asked, PromoteAsked)
        return asked.rollout, *asked.together

    # Looks

    def query(
        self,
        sql: str,
        *,
        at: datetime | str | None = None,
        at_generation: int | None = None,
        at_offsets: str | None = None,
        at_event_time: datetime | str | None = None,
        after: str | None = None,
        timeout: float | None = None,
    ) -> QueryResult:
        """Answers a query in DuckDB's SQL, given as `sql`, from one snapshot of the served tables.

        `at`, `at_generation`, `at_offsets` and `at_event_time` name a moment in the past, like the
        flags of `kappa query`. `after` is a write token of `produce`: the query waits until readers
        see the token's records, for at most `timeout` seconds (30 if not given). Raises UsageError
        if the query has a mistake, and TimedOut if the wait takes too long.

        Example:
            result = project.query("select page, hits from page_hits order by page")
            frame = result.df()
        """
        from kappa.serving.query.statements import SqlStatement

        if after is not None:
            self.wait_until_shown(after, timeout=timeout)
        when = moment_of(
            at=at, generation=at_generation, offsets=at_offsets, event_time=at_event_time
        )
        (answer,) = self.query_each((SqlStatement(sql, 1),), when=when)
        return answer

    def query_each(
        self, statements: Sequence[SqlStatement], *, when: Past | None = None
    ) -> tuple[QueryResult, ...]:
        """Answers several queries from one snapshot: of the present, or of the past moment `when`.

        If one of the queries fails, raises an error that names this query, and returns no answers.
        """
        from kappa.project.answers import QueryResult
        from kappa.serving.query.query import answer_each

        return answer_each(
            self._here.store,
            statements,
            lambda reader, sql, snapshot: QueryResult(reader.keep_rows(sql), snapshot),
            when=when,
            lease_seconds=self._here.lease_seconds,
        )

    @contextmanager
    def pin(
        self,
        *,
        at: datetime | str | None = None,
        at_generation: int | None = None,
        at_offsets: str | None = None,
        at_event_time: datetime | str | None = None,
    ) -> Iterator[PinnedTables]:
        """Pins a snapshot for several queries, and keeps its files until the block ends.

        `at`, `at_generation`, `at_offsets` and `at_event_time` are as for `query`.

        Example:
            with project.pin() as pinned:
                hits = pinned.query("select sum(hits) from page_hits").fetchall()
                rows = pinned.query("select * from page_hits").arrow()
        """
        from kappa.project.answers import PinnedTables
        from kappa.serving.query.pin.catalog import pin_moment
        from kappa.serving.query.query import open_snapshot

        store, seconds = self._here.store, self._here.lease_seconds
        when = moment_of(
            at=at, generation=at_generation, offsets=at_offsets, event_time=at_event_time
        )
        with (
            pin_moment(store, when, lease_seconds=seconds) as pinned,
            open_snapshot(pinned.snapshot, store) as reader,
        ):
            yield PinnedTables(pinned, reader)

    def tables(self, *, when: Past | None = None) -> Report:
        """Lists the served tables and views, with columns, rows and paths.

        `when` is a past moment, from `kappa.project.project.moment_of`.

        Example:
            for table in project.tables():
                print(table["table"], table["rows"])
        """
        from kappa.project.report import Report
        from kappa.serving.query.tables import served_tables, tables_listing

        found = served_tables(self._here.store, when=when, lease_seconds=self._here.lease_seconds)
        return Report(
            tables_listing(found, columns_as_text=True), for_machines=tables_listing(found)
        )

    def table(self, name: str, *, when: Past | None = None) -> Report:
        """Describes the table or view `name`: columns, rows, files, the writer and the readers.

        `when` is a past moment, from `kappa.project.project.moment_of`.

        Example:
            print(project.table("page_hits"))
        """
        from kappa.project.report import Report
        from kappa.replay.page.table import (
            describe_table,
            described_document,
            described_listing,
            described_text,
        )

        found = describe_table(
            self._here.store,
            self.folder,
            name,
            now=time.time(),
            when=when,
            lease_seconds=self._here.lease_seconds,
        )
        return Report(described_listing(found), described_document(found), described_text(found))

    def changes(
        self,
        table: str,
        *,
        since: Cursor | str | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = True,
    ) -> Iterator[ChangeSet]:
        """Yields a change set with a served `table`'s rows, and then change sets with net changes.

        With `since`, only the changes after this cursor are yielded. Pass the cursor of the last
        change set that was used (`change_set.head.cursor`). `where` and `columns` are as for `kappa
        changes`. Without `follow`, the iteration ends at the present state of the table. A change
        set can be read until the caller requests the next one. Raises UsageError if the table is
        not served.

        Example:
            for change_set in project.changes("page_hits", follow=False):
                for change in change_set.rows():
                    print(change.op, change.before, change.after)
        """
        from kappa.serving.outlets.changes.cursor import Cursor
        from kappa.serving.outlets.changes.filter import Filter

        follower = self.follower(
            table,
            since=Cursor.parse(since) if isinstance(since, str) else since,
            chosen=Filter(None if columns is None else tuple(columns), where),
        )
        while True:
            with follower.next_change_set() as change_set:
                if change_set is not None:
                    yield change_set
            if not follow:
                return
            while not follower.wait_for_change(_WAIT_SECONDS):
                pass

    def follower(
        self, table: str, *, since: Cursor | None = None, chosen: Filter | None = None
    ) -> Follower:
        """Creates a follower of a table: an object that reads the table's change sets one by one.

        `since` is the cursor after which the follower starts. `chosen` selects rows and columns.
        The limits and waiting times come from the project's settings. Raises UsageError if the
        table is not served.
        """
        from kappa.serving.outlets.changes.follower import Follower
        from kappa.serving.query.reader.reader import Limits

        settings, store = self._here.settings, self._here.store
        return Follower(
            store,
            table,
            since=since,
            chosen=chosen,
            lease_seconds=settings.rollout.lease_seconds,
            keep_seconds=settings.changes.keep_seconds,
            limits=Limits.of(settings.verify, store),
        )

    @contextmanager
    def exporter(self, *tables: str, to: str | Path, iceberg: bool = False) -> Iterator[Exporter]:
        """Opens an exporter that copies served `tables` into the folder `to`, for other engines.

        The exporter's `next_switch()` copies all tables from one snapshot. The copies are plain
        Delta tables, and with `iceberg` also Iceberg tables. `to` may be `s3://BUCKET/PREFIX`.
        Raises Conflict if another process exports to the folder, and UsageError if the folder
        contains other files.

        Example:
            with project.exporter("page_hits", to="export") as exporter:
                exporter.next_switch()
                print(exporter.record.tables["page_hits"].version)
        """
        from kappa.serving.outlets.export.exporter import open_exporter
        from kappa.serving.query.reader.reader import Limits

        settings, store = self._here.settings, self._here.store
        with open_exporter(
            store,
            tables,
            str(to),
            with_iceberg=iceberg,
            storage=settings.storage,
            limits=Limits.of(settings.verify, store),
            lease_seconds=settings.rollout.lease_seconds,
            keep_seconds=settings.changes.sinks_keep_seconds,
        ) as exporter:
            yield exporter

    def status(self) -> Report:
        """Reports serving builds, rollouts in progress, the lag of each build, and processes.

        `document["damaged"]` lists damaged records. All records that are intact are still included.

        Example:
            for build in project.status():
                print(build["build"], build["behind"])
        """
        from kappa.state.files.bucket import LOOKING, with_patience

        # A person who looks wants to learn soon that the server of the root is away.
        with with_patience(LOOKING):
            return self._look_at_status()

    def _look_at_status(self) -> Report:
        from kappa.base.errors import Damaged
        from kappa.project.report import Report
        from kappa.replay.rollout.current_state import readable_state
        from kappa.replay.rollout.supervisor_report import read_supervisor_report
        from kappa.replay.status.outgoing_changes import waiting_text
        from kappa.replay.status.run_records import restart_text, settings_since_start
        from kappa.replay.status.status import observe_status
        from kappa.replay.status.status_text import status_document, status_heading, status_listing

        here = self._here
        running, broker, http = here.running, here.bootstrap_servers, here.http
        underway = None if running is None else read_supervisor_report(here.store)
        seen = observe_status(
            here.store,
            None if broker is None else here.log(looks=True),
            soak_seconds=here.settings.rollout.soak_seconds,
            underway=underway,
            reserve=0 if running is None else here.settings.reserve_bytes,
        )
        now = datetime.now(UTC)
        document = status_document(seen, running, broker, http, now)
        changed = settings_since_start(here.settings)
        document["settings_changed_since_start"] = list(changed)
        restart = f"{restart_text(changed)}\n" if changed else ""
        waiting = ""
        # The heading names the damage.
        with suppress(Damaged):
            state, _ = readable_state(here.store)
            waiting = waiting_text(here.store, state, most=here.settings.alerts.most)
        heading = status_heading(seen, running, broker, http) + restart + waiting
        return Report(status_listing(seen, now), document, heading)

    def history(self, pipeline: str | None = None, *, limit: int | None = None) -> Report:
        """Lists rollouts with receipts, proofs, retirements, pauses and redrives, oldest first.

        With `pipeline`, only the entries of this pipeline are listed. With `limit`, only this
        number of the newest entries is listed.

        Example:
            for entry in project.history(limit=10):
                print(entry)
        """
        from kappa.project.report import Report
        from kappa.replay.rollout.history import (
            ensure_known,
            proof_records,
            rollout_entries,
            service_records,
        )
        from kappa.replay.status.listings import history_listing

        state = self._here.state()
        if pipeline is not None:
            ensure_known(state, pipeline)
        return Report(
            history_listing(
                rollout_entries(state),
                proof_records(state),
                service_records(state),
                pipeline=pipeline,
                limit=limit,
            )
        )

    def rejects(
        self,
        pipeline: str | None = None,
        *,
        reason: str | None = None,
        build: str | None = None,
        limit: int | None = 20,
    ) -> Report:
        """Lists the newest rejects of the serving builds, with their position, content and reason.

        If `pipeline` or `reason` is given, only rejects of this pipeline or with this reason are
        listed. With `build`, the rejects of this build are listed instead. `limit` is the maximum
        number of rejects; None means all.

        Example:
            print(project.rejects(reason="missing_field"))
        """
        from kappa.project.report import Report
        from kappa.replay.rollout.rollout_numbers import part_named
        from kappa.replay.status.listings import rejects_listing
        from kappa.serving.query.rejects import RejectFilter, newest_rejects

        found = newest_rejects(
            self._here.store,
            RejectFilter(*part_named(self._here.state, pipeline, build), reason),
            limit=limit,
            lease_seconds=self._here.lease_seconds,
        )
        return Report(rejects_listing(found))

    def diff(
        self,
        pipeline: str,
        before: str | None = None,
        after: str | None = None,
        *,
        tables: Sequence[str] | None = None,
        sample: int = 5,
    ) -> Report:
        """Compares the rows of two builds of a `pipeline` at equal offsets.

        `before` and `after` are the builds. By default, the serving build is compared with the
        candidate, or with the build that served before. `tables` limits the comparison to these
        tables, and `sample` is the number of rows of each kind of difference that are shown. Raises
        UsageError if there are no two builds to compare.

        Example:
            print(project.diff("web"))
        """
        from kappa.project.report import Report
        from kappa.replay.rollout.verify.diff_listing import diff_document, diff_listing, diff_text
        from kappa.replay.rollout.verify.pairs import builds_to_compare, compare_pair, pin_equal
        from kappa.replay.status.run_records import running_at
        from kappa.serving.query.reader.reader import Limits

        here = self._here
        builds = builds_to_compare(here.state(), pipeline, before, after)
        with pin_equal(
            here.store,
            *builds,
            lease_seconds=here.lease_seconds,
            wait_seconds=0 if running_at(here.store) is None else _TOGETHER_SECONDS,
        ) as (pair, pinned):
            log = None if here.bootstrap_servers is None else here.log()
            found = compare_pair(
                here.store,
                pair,
                pinned,
                log=log,
                limits=Limits.of(here.settings.verify, here.store),
                samples=sample,
                only=None if tables is None else list(tables),
            )
        born = pinned.snapshot.births[pair.after.build].tables
        return Report(
            diff_listing(found),
            diff_document(pair, found),
            text=diff_text(pair, found, {each.name: each.keys for each in born}),
        )

    # Events

    def produce(self, topic: str, events: Iterable[Mapping[str, Any]]) -> Produced:
        """Sends `events` to a declared `topic`, and waits until the broker has acknowledged them.

        Each event maps column names to values. The event and its key are encoded in the formats
        that the topic declares. The result contains a write token: `query(..., after=token)` waits
        for the records. If the topic's declaration would reject an event, raises UsageError with
        the number of this event; the previous events have been sent.

        Example:
            written = project.produce("visits", [{"visitor": "ada", "page": "/"}])
            project.query("select * from page_hits", after=written.token)
        """
        from kappa.base.errors import UsageError
        from kappa.records.lines.input_events import placed_rows

        # The declarations of now: a program may have changed files since it opened the project.
        fresh = ProjectContext(self.folder, self._here.root_flag)
        declared = fresh.declared_topic(topic)
        if declared is None:
            raise UsageError(
                f"the project declares no topic {topic} that a pipeline reads, so no event can be "
                "made",
                hint="declare it, and let a pipeline read it",
            )
        return self.produce_placed(topic, placed_rows(declared, events))

    def produce_placed(
        self,
        topic: str,
        records: Iterable[tuple[str, ProducedRecord]],
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> Produced:
        """Sends records to a topic, and waits until the broker has acknowledged them.

        `records` contains pairs (position in the input, record), so that errors can name the
        position of a record. `on_progress` is called with the number of records acknowledged so
        far.
        """
        from kappa.records.lines.produce import produce_placed
        from kappa.serving.query.pin.moments import written_offsets

        acknowledged = produce_placed(self._here.log(), topic, records, on_progress=on_progress)
        token = written_offsets(acknowledged.offsets) if acknowledged.count else None
        return Produced(acknowledged.count, acknowledged.offsets, token)

    def wait_until_shown(self, token: str | Offsets, *, timeout: float | None = None) -> None:
        """Waits until readers see all records of a write token, for at most `timeout` seconds.

        The default is 30 seconds. Raises TimedOut, with the known reasons for the delay, if the
        wait takes longer. Raises UsageError if no serving build reads the token's topic.
        """
        from kappa.serving.query.pin.moments import parse_offsets
        from kappa.serving.query.pin.write_token import ensure_covered

        ensure_covered(
            self._here.store,
            parse_offsets(token) if isinstance(token, str) else token,
            seconds=_SHOWN_SECONDS if timeout is None else timeout,
            is_up=lambda: self._here.running is not None,
        )

    def _begin(
        self,
        pipelines: Sequence[str],
        reason: str,
        allow: Iterable[str],
        *,
        auto_promote: bool,
        breaking: bool,
        gap: bool,
    ) -> tuple[int, ...]:
        from kappa.code.spark_child import one_child

        self._here.must_run()
        with one_child(self._here.settings):
            made = self.plan(*pipelines, allow=allow, allow_breaking=breaking, accept_gap=gap)
            return made.begin(auto_promote=auto_promote, reason=reason)

    def _served(
        self, ids: Iterable[int], timeout: float | None, *, by_yes: bool = False
    ) -> tuple[Rollout, ...]:
        """Waits until each rollout serves, fails or is abandoned, and returns the rollouts.

        With `by_yes`, also stops waiting for a rollout that needs a person's approval, and treats
        this as an error. If there are errors, raises the first error after the last rollout has
        been followed.
        """
        from kappa.replay.status.follow import ensure_not_waiting

        ended: list[Rollout] = []

        def follow(id_: int) -> None:
            rollout = follow_to_end(self._here, id_, timeout=timeout, to_the_yes=by_yes)
            ensure_not_waiting(rollout)
            ended.append(rollout)

        for_each_rollout(follow, ids)
        return tuple(ended)

    def _rollouts(self, ids: Iterable[int]) -> tuple[Rollout, ...]:
        state = self._here.state()
        return tuple(state.rollout(id_) for id_ in ids)


def moment_of(
    *,
    at: datetime | str | None = None,
    generation: int | None = None,
    offsets: str | None = None,
    event_time: datetime | str | None = None,
) -> Past | None:
    """Returns the past moment that the arguments specify, or None for the present.

    A time without a zone is in UTC. Raises UsageError if the arguments specify more than one
    moment.
    """
    from kappa.serving.query.pin.moments import ensure_one_moment, past_moment

    asked = {
        "at": at,
        "at_generation": generation,
        "at_offsets": offsets,
        "at_event_time": event_time,
    }
    ensure_one_moment(asked)
    return past_moment(
        generation,
        None if at is None else _time_of(at),
        offsets,
        None if event_time is None else _time_of(event_time),
    )


def _time_of(given: datetime | str) -> datetime:
    from kappa.serving.query.pin.moments import parse_time

    return parse_time(given if isinstance(given, str) else given.isoformat())[0]
