"""Runs all tests of a project, one after the other, on one Spark session in this process.

A case consists of files with events and files with the expected rows (cases.py). Each pipeline that
reads a topic of the case folds the events. The rows are compared with the files, and the law of
slices is checked. Then pytest runs the project's test files; the fixture `warm_spark` uses the same
Spark session.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from kappa.base.errors import KappaError, UsageError, VerificationFailed
from kappa.base.settings import Settings
from kappa.base.units import count_of
from kappa.code.project import load_project
from kappa.declare.pipeline import Pipeline
from kappa.develop.cases import (
    TESTS,
    Case,
    compare_rows,
    project_cases,
    rows_file,
    surplus_files,
    write_rows,
)
from kappa.develop.row_changes import Row
from kappa.develop.run_text import Line, Style, change_lines
from kappa.engine.children.law_check import hold_to_law
from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, local_pipeline, rows_of_log
from kappa.kafka.stored_schemas import open_registry
from kappa.records.decode.raw_records import RawRecord
from kappa.state.store import open_store
from kappa.tables.views.view_tables import build_tables

# As many slices as a deploy tries. Files of tests can try more.
_SLICES, _LAW_RECORDS = 4, 200
# Kappa, which has a plugin, is imported before pytest could rewrite its assertions.
_REWRITTEN = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
Show = Callable[[Iterable[Line]], None]
Step = Callable[[str], AbstractContextManager[Callable[[str], None]]]


def run_tests(
    settings: Settings,
    session: Callable[[], object],
    *,
    update: bool,
    show: Show,
    step: Step,
) -> None:
    """Runs all tests of a project.

    Raises UsageError if there are no tests, if no rows were compared, or if pytest is missing.
    Raises DeclarationError if a file cannot be loaded, and VerificationFailed if a test fails.

    Args:
        settings: The project's settings.
        session: Waits until this process's Spark session is ready and active.
        update: If True, files whose rows differ are overwritten with the actual rows.
        show: Shows lines of text.
        step: Shows the text of a long step. Yields a function that changes the text.
    """
    began, project = time.monotonic(), settings.project
    cases = project_cases(project)
    files = sorted({*(project / TESTS).rglob("test_*.py"), *(project / TESTS).rglob("*_test.py")})
    if not cases and not files:
        raise UsageError(
            f"the project in {project} has no tests",
            hint="put events in events/TOPIC.ndjson, one JSON object a line, and write the rows "
            "that come out of them: kappa test --update",
        )
    suite = _Suite(project, update=update, show=show, step=step)
    has_pytest = importlib.util.find_spec("pytest") is not None
    with step("starting Spark"):
        if files and has_pytest:
            # The JVM boots meanwhile.
            importlib.import_module("pytest")
        # The top of a file is run without a session, as in a deploy.
        pipelines = load_project(project).pipelines
        if settings.registry.url is not None:
            open_registry(settings, open_store(settings))
        session()
    for case in cases:
        suite.run_case(case, pipelines)
    if files and has_pytest:
        suite.run_pytest()
    failed = f", {suite.failed} failed" if suite.failed else ""
    seconds = time.monotonic() - began
    show([(Style.TITLE, f"{suite.passed} passed{failed} in {seconds:.1f} s")])
    if suite.failed:
        raise VerificationFailed(
            f"{count_of(suite.failed, 'test')} failed",
            hint="if other rows are right now, write them: kappa test --update",
        )
    if files and not has_pytest:
        raise UsageError(
            f"{files[0].relative_to(project)} was not run: pytest is not installed",
            hint="pip install 'kappa[test]'",
        )
    if not suite.has_compared:
        raise UsageError(
            "no rows were compared: "
            + (
                f"there is no {suite.missing_rows[0]}"
                if suite.missing_rows
                else "no pipeline reads the events of a case"
            ),
            hint="write the rows that come out now, and read them: kappa test --update"
            if suite.missing_rows
            else "a case has a file events/TOPIC.ndjson for a topic that a pipeline reads",
        )


@dataclass(slots=True)
class _Suite:
    """The tests of a project, and the numbers of tests that have passed and failed so far.

    `missing_rows` contains the folders of expected rows that should exist but do not.
    `has_compared` is True if rows were compared, or if pytest has run a test of the project.
    """

    project: Path
    update: bool
    show: Show
    step: Step
    passed: int = 0
    failed: int = 0
    has_compared: bool = False
    missing_rows: list[Path] = field(default_factory=list)

    def run_case(self, case: Case, pipelines: Mapping[str, Pipeline]) -> None:
        """Tests a case with each pipeline that reads the case's events.

        For each pipeline, compares the rows with the files of expected rows, and checks the law of
        slices.
        """
        files = list[Path]()
        is_whole = True
        for pipeline in pipelines.values():
            name = f"{case.name}: {pipeline.name}"
            try:
                records = case.records(pipeline)
                if not records:
                    continue
                with (
                    self.step(f"folding {count_of(len(records), 'event')} by {pipeline.name}"),
                    local_pipeline(pipeline) as local,
                ):
                    rows = rows_of_log(local, MemoryLog.of(records))
                lines = [*self._differences(case, local, rows)]
                files += [rows_file(case, pipeline, table) for table in rows]
            except KappaError as error:
                is_whole = False
                self._judge(name, _error_lines(error))
                continue
            if self.update or case.rows.is_dir():
                self.has_compared = True
                self._judge(f"{name}, rows of {', '.join(rows)}", lines)
            else:
                named = case.rows.relative_to(self.project)
                self.missing_rows.append(named)
                self.show([(Style.DIM, f"{name}: there is no {named}: kappa test --update")])
            self._try_law(name, local, records)
        surplus = surplus_files(case, files) if is_whole else ()
        for file in surplus:
            if self.update:
                file.unlink()
        self._judge_surplus(case, surplus)

    def run_pytest(self) -> None:
        """Runs the project's test files with pytest, in the project's folder."""
        import pytest  # noqa: PLC0415  # it is the user's own

        class Counts:
            """A pytest plugin that counts passed and failed tests, and records an interruption."""

            passed = failed = 0
            is_interrupted = False

            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                self.passed += report.when == "call" and report.passed
                self.failed += report.failed

            def pytest_collectreport(self, report: pytest.CollectReport) -> None:
                self.failed += report.failed

            def pytest_keyboard_interrupt(self) -> None:
                self.is_interrupted = True

        before, counts = Path.cwd(), Counts()
        os.chdir(self.project)
        try:
            code = pytest.main(["-q", "-W", _REWRITTEN, TESTS], plugins=[counts])
        finally:
            os.chdir(before)
        if counts.is_interrupted:
            raise KeyboardInterrupt
        self.passed += counts.passed
        self.failed += counts.failed
        self.has_compared = self.has_compared or counts.passed + counts.failed > 0
        if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            # Pytest's own refusals, such as those of its settings, are no test that has failed.
            self.failed += counts.failed == 0

    def _differences(
        self, case: Case, local: LocalPipeline, rows: Mapping[str, Sequence[Row]]
    ) -> Iterator[Line]:
        pipeline = local.pipeline
        keys = {table.name: table.keys for table in build_tables(pipeline, local.outputs)}
        for table, file, change in compare_rows(case, pipeline, rows, keys):
            named = file.relative_to(self.project)
            if self.update:
                write_rows(file, rows[table])
                yield Style.CHANGED, f"  writes {named}: {count_of(len(rows[table]), 'row')}"
            elif change is None:
                yield Style.REFUSED, f"  {named} is missing"
            else:
                yield Style.REFUSED, f"  {named} has other rows: - expected, + came out"
                yield from change_lines(change, in_full=False)

    def _try_law(self, name: str, local: LocalPipeline, records: Iterable[RawRecord]) -> None:
        by_topic = defaultdict[str, list[RawRecord]](list)
        for record in records:
            by_topic[record[0]].append(record)
        few = [each for found in by_topic.values() for each in found[:_LAW_RECORDS]]
        try:
            with self.step(f"law of slices: {name}") as say:
                held = hold_to_law(
                    local,
                    MemoryLog.of(few),
                    cuts=0,
                    most_slices=_SLICES,
                    by_spark=False,
                    say=lambda line: say(f"law of slices: runs {name}: {line}"),
                )
        except KappaError as error:
            self._judge(f"{name}, law of slices", _error_lines(error))
        else:
            self._judge(f"{name}, law of slices, {count_of(held.tried, 'way')} to cut the log", ())

    def _judge_surplus(self, case: Case, surplus: Iterable[Path]) -> None:
        lines = [
            (Style.CHANGED, f"  deletes {file.relative_to(self.project)}")
            if self.update
            else (Style.REFUSED, f"  {file.relative_to(self.project)}: no table has this name")
            for file in surplus
        ]
        if lines:
            self._judge(f"{case.name}: files of rows", lines)

    def _judge(self, name: str, lines: Iterable[Line]) -> None:
        """Counts a test as passed or failed, and shows its name and its lines.

        The test has failed if one of its lines has the style REFUSED.
        """
        lines = [*lines]
        has_failed = any(style is Style.REFUSED for style, _ in lines)
        self.failed += has_failed
        self.passed += not has_failed
        verdict = (Style.REFUSED, f"FAILED {name}") if has_failed else (Style.ADDED, f"ok {name}")
        self.show([verdict, *lines])


def _error_lines(error: KappaError) -> Iterator[Line]:
    yield Style.REFUSED, f"  {error.message}"
    if error.hint:
        yield Style.PLAIN, f"  hint: {error.hint}"
