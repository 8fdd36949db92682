"""Runs a project's pipelines on samples, and compares each run with the previous one.

A child process in which Spark already runs folds the samples
(kappa/engine/children/fold_sample.py). All files of a run are in a scratch root. A run reads the
birth certificates of the serving builds, and does not change these builds.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from kappa.base.errors import DeclarationError, KappaError, SettingsError
from kappa.base.settings import Settings, load_settings
from kappa.code.fingerprint import version_differences
from kappa.code.spark_child import ask_program
from kappa.declare.options import REJECTS
from kappa.develop.child import has_root, settings_below
from kappa.develop.row_changes import Row, TableChange, table_change
from kappa.develop.sample import Sample, Samples
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.plan.declared_pipelines import describe_declared_pipelines
from kappa.replay.rollout.plan.facts import Declared, has_its_rows
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.plan import Refusal
from kappa.replay.rollout.plan.schema_changes import reader_changes
from kappa.replay.rollout.plan.validate import validate_boards, validate_pipelines
from kappa.state.build import Birth, read_birth
from kappa.state.store import Store, open_store

# A run on a few thousand records that takes longer than this hangs, on a busy machine, too.
_SECONDS = 120.0
_Rows = Mapping[str, list[Row]]


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """The result of a run for one pipeline: a short plan, the samples, and the changed rows.

    `changes` contains the difference of each table. `same` is True if the pipeline was not folded
    again, because neither its code nor its samples have changed since its last successful run.
    """

    name: str
    plan: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    changes: tuple[TableChange, ...] = ()
    same: bool = False


@dataclass(frozen=True, slots=True)
class ProjectRun:
    """The result of a run of all pipelines, with the refusals of files and functions.

    `seconds` is the duration of the run. `gone` contains the pipelines of the previous run that no
    file of the project declares any more.
    """

    seconds: float
    pipelines: tuple[PipelineRun, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(slots=True)
class _LastRun:
    """The last successful run of a pipeline: its declaration, samples, and rows by table."""

    declared: Declared
    samples: tuple[Sample, ...]
    rows: _Rows


@dataclass(slots=True)
class SampleRuns:
    """Runs of a project in a scratch folder.

    `settings` are the settings of the command. `samples` reads the samples of topics when a run
    needs them. `serving` maps a pipeline to the birth certificate of its serving build; if
    `serving` is None, the certificates are read from the root.
    """

    settings: Settings
    scratch: Path
    samples: Samples
    serving: Mapping[str, Birth] | None = None
    _good: dict[str, _LastRun] = field(default_factory=dict)
    # The pipelines that some file declared in the last run without a broken file.
    _declared: frozenset[str] = frozenset()
    _number: int = 0

    def forget(self) -> None:
        """Makes the next run read samples and serving builds again, and fold all pipelines again.

        The rows of the last successful runs are kept for the comparison.
        """
        self.samples.forget()
        self.serving = None
        for last in self._good.values():
            last.samples = ()

    def run(self, say: Callable[[str], None] = lambda _text: None) -> ProjectRun:
        """Runs the project with its present files.

        `say` is called with a text before each long step. A KappaError becomes a refusal in the
        result.
        """
        began = time.monotonic()
        try:
            run = self._run(say)
        except KappaError as error:
            run = ProjectRun(0.0, refusals=(_refusal("", error),))
        return replace(run, seconds=time.monotonic() - began)

    def _run(self, say: Callable[[str], None]) -> ProjectRun:
        """Runs the project with its present files, without measuring the time of the run.

        The field `seconds` of the result is 0.
        """
        say("reading the project" if self._number else "starting Spark, and reading the project")
        settings = load_settings(self.settings.project, root=self.settings.root)
        scratched = settings_below(settings, self.scratch)
        store = Store(scratched.root, syncs=False)
        project = describe_declared_pipelines(scratched, store)
        found = project.found
        # A file that cannot be loaded may declare the pipelines that are missed.
        gone = () if project.unloadable else tuple(sorted(self._declared - project.names))
        # A file that an editor has written in part may declare nothing: boards wait for the rest.
        boards = () if gone else validate_boards(settings.project, found)
        refusals = [
            each
            for result in (*validate_pipelines(found, Allowances()), *boards)
            for each in result.refused
        ]
        if not project.unloadable:
            self._declared = project.names
        declared = {name: each for name, each in found.items() if isinstance(each, Declared)}
        samples = dict[str, tuple[Sample, ...]]()
        for name, each in declared.items():
            say(f"reading samples of {', '.join(topic.name for topic in each.pipeline.topics)}")
            try:
                samples[name] = tuple(map(self.samples.sample, each.pipeline.topics))
            except KappaError as error:
                refusals.append(_refusal(name, error))
        due = [name for name in samples if not self._is_same(declared[name], samples[name])]
        answers = self._folded(scratched, {name: declared[name] for name in due}, samples, say)
        runs = []
        for name in sorted(samples):
            answer = answers.get(name)
            if isinstance(answer, Refusal):
                refusals.append(answer)
                runs.append(PipelineRun(name, self._plan(declared[name]), samples[name]))
            else:
                runs.append(self._compared(declared[name], samples[name], answer))
        return ProjectRun(0.0, tuple(runs), tuple(refusals), gone)

    def _is_same(self, declared: Declared, samples: tuple[Sample, ...]) -> bool:
        last = self._good.get(declared.pipeline.name)
        return (
            last is not None
            and last.declared.version == declared.version
            and last.samples == samples
        )

    def _folded(
        self,
        settings: Settings,
        due: Mapping[str, Declared],
        samples: Mapping[str, tuple[Sample, ...]],
        say: Callable[[str], None],
    ) -> Mapping[str, _Rows | Refusal]:
        """Folds the samples of the pipelines in `due` in the child process with Spark.

        Returns the rows of each pipeline, or a refusal if the pipeline failed, by the pipeline's
        name. `say` is called with a text before the samples are folded.
        """
        if not due:
            return {}
        say(f"folding the samples: {', '.join(due)}")
        self._number += 1
        file = self.scratch / f"records-{self._number}"
        found = {each.topic: each.records for name in due for each in samples[name]}
        file.write_bytes(msgspec.msgpack.encode(found))

        def cut(name: str, last: str | None) -> Mapping[str, Any]:
            source = due[name].pipeline.source
            how = f"did not end within {_SECONDS:g} s" if last is None else f"ended: {last}"
            return {
                "message": f"{source}: the run of pipeline {name} on its samples {how}",
                "hint": "look for a loop without an end",
            }

        try:
            answers = ask_program(
                settings,
                settings.project,
                "kappa.engine.children.fold_sample",
                {name: each.module for name, each in due.items()},
                seconds=lambda _left: _SECONDS,
                cut=cut,
                more=lambda: {"root": settings.root, "records": str(file)},
            )
            return {name: _rows_of(name, answer) for name, answer in answers.items()}
        finally:
            file.unlink()

    def _compared(
        self, declared: Declared, samples: tuple[Sample, ...], rows: _Rows | None
    ) -> PipelineRun:
        """Compares a pipeline's rows with the rows of its last successful run.

        Stores the new rows for the comparison in the next run. `rows` is None if the pipeline was
        not folded.
        """
        name, plan = declared.pipeline.name, self._plan(declared)
        last = self._good.get(name)
        if rows is None:
            return PipelineRun(name, plan, samples, same=True)
        keys = {table.name: table.keys for table in declared.tables}
        before = {} if last is None else last.rows
        changes = [
            table_change(table, before.get(table), found, keys.get(table, ()))
            for table, found in rows.items()
            # A table of rejects that is empty is no news.
            if found or table != REJECTS or before.get(table)
        ]
        changes += [
            TableChange(table, 0, removed=tuple(found), is_gone=True)
            for table, found in before.items()
            if table not in rows
        ]
        self._good[name] = _LastRun(declared, samples, rows)
        return PipelineRun(name, plan, samples, tuple(changes))

    def _plan(self, declared: Declared) -> tuple[str, ...]:
        """Returns a short plan for a pipeline, as lines of text.

        The plan contains the differences from the serving build, including those that readers
        notice. If no build serves, the plan contains the differences from the pipeline's last
        successful run.
        """
        name = declared.pipeline.name
        born = self._births().get(name)
        if born is None:
            last = self._good.get(name)
            changed = (
                () if last is None else version_differences(last.declared.parts, declared.parts)
            )
            return (": ".join(["new", *([", ".join(changed)] if changed else [])]),)
        if born.version == declared.version:
            return ("as it serves",)
        reasons = ", ".join(version_differences(born.parts, declared.parts))
        replays = "replays nothing" if has_its_rows(declared, born) else "replays its topics"
        readers = reader_changes(born, declared.tables, declared.pipeline.view_queries)
        return (
            f"changed: {reasons}; a deploy {replays}",
            *(f"readers: {each.text}{' (breaking)' if each.breaking else ''}" for each in readers),
        )

    def _births(self) -> Mapping[str, Birth]:
        if self.serving is None:
            self.serving = serving_births(self.settings)
        return self.serving


def serving_births(settings: Settings) -> Mapping[str, Birth]:
    """Returns the birth certificates of the serving builds, by pipeline.

    If the root does not exist or cannot be read, the result is empty. This function does not create
    a root.
    """
    if not has_root(settings):
        return {}
    try:
        store = open_store(settings)
        serving = current_state(store).serving
        return {name: read_birth(store, build) for name, build in serving.items()}
    except KappaError:
        # The plan in brief is the only one that needs it; kappa status and doctor report damage.
        return {}


def _rows_of(name: str, answer: Mapping[str, Any]) -> _Rows | Refusal:
    if "message" in answer:
        return Refusal(name, answer["message"], answer["hint"])
    file = Path(answer["rows"])
    # This process's own child has written the file.
    found: _Rows = pickle.loads(file.read_bytes())  # noqa: S301
    file.unlink()
    return found


def _refusal(name: str, error: KappaError) -> Refusal:
    return Refusal(
        name,
        error.message,
        error.hint,
        in_files=isinstance(error, DeclarationError | SettingsError),
    )
