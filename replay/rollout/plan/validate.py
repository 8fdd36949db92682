"""Validates the project's pipelines and boards, without a broker and without the journal.

Validation covers declarations, keys, folds, columns, the SQL of views and checks, determinism,
circles of pipelines through sinks, and the files of boards. The checks that need the log or the
journal are part of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kappa.base.duck import CatalogError
from kappa.base.errors import (
    DeclarationError,
    KappaError,
    SettingsError,
    UsageError,
    joined_error,
)
from kappa.base.settings import Settings, find_project
from kappa.code.project import load_files
from kappa.declare.board import FOLDER, Board, boards_in
from kappa.declare.topic_patterns import NothingJoined, before_joining
from kappa.replay.rollout.plan.declared_pipelines import describe_declared_pipelines
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.finding import Allowances, allowing_flag
from kappa.replay.rollout.plan.make_plan import refuse_unknown
from kappa.replay.rollout.plan.plan import Refusal
from kappa.replay.rollout.plan.preflight import TopicUse, declared_uses, refused_circle
from kappa.replay.rollout.state import State
from kappa.serving.query.reader.reader import Reader, open_reader
from kappa.serving.query.reader.relations import empty_relations, put_relations
from kappa.serving.query.render import Listing
from kappa.state.build import read_birth
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The result for a pipeline or a board: its refusals, and the version of a declared pipeline.

    `not_checked` is the reason why a board without refusals could not be checked, or "".
    """

    pipeline: str | None
    version: str | None
    refused: tuple[Refusal, ...] = ()
    board: str | None = None
    not_checked: str = ""

    @property
    def is_valid(self) -> bool | None:
        """Returns True if there are no refusals, otherwise False.

        Returns None if a board could not be checked.
        """
        return None if self.not_checked else not self.refused

    @property
    def name(self) -> str:
        """Returns the name of the pipeline, or the file of the board."""
        return self.pipeline or f"{FOLDER}/{self.board}.toml"


def validate_project(
    settings: Settings,
    store: Store,
    *,
    only: Collection[str] = (),
    accepting: Allowances | None = None,
    show: Callable[[str], None] = lambda _step: None,
) -> tuple[ValidationResult, ...]:
    """Validates all pipelines and boards, or only the pipelines in `only`.

    `accepting` are the operator's allowances. `show` is called at the beginning of each slow step,
    with a description of the step. Raises UsageError if a name in `only` is not a pipeline of the
    project, and the errors of `describe_declared_pipelines`.
    """
    names, found, _ = describe_declared_pipelines(settings, store, only, show=show)
    refuse_unknown(only, names)
    pipelines = validate_pipelines(found, accepting or Allowances())
    return pipelines if only else (*pipelines, *validate_boards(settings.project, found))


def validate_pipelines(
    found: Mapping[str, Declared | DeclarationError], accepting: Allowances
) -> tuple[ValidationResult, ...]:
    """Returns a result for each described pipeline, and for each file that cannot be loaded.

    `found` is the result of `describe_declared_pipelines`. `accepting` are the operator's
    allowances.
    """
    uses = declared_uses({n: each for n, each in found.items() if isinstance(each, Declared)})
    return tuple(_validated_pipeline(name, found[name], accepting, uses) for name in sorted(found))


def validate_boards(
    project: Path, found: Mapping[str, Declared | DeclarationError]
) -> tuple[ValidationResult, ...]:
    """Validates the files of a project's boards, and runs their queries over tables without rows.

    `found` is the result of `describe_declared_pipelines`, which contains the declared tables. A
    query may read a table that no valid pipeline declares. If any pipeline is refused, such a query
    is not checked, because the table may belong to the refused pipeline.
    """
    boards = boards_in(project)
    if not boards:
        return ()
    declared = {n: each for n, each in found.items() if isinstance(each, Declared)}
    with open_reader(None, served=True) as reader:
        refused = sorted(found.keys() - declared.keys())
        put_relations(
            reader,
            [
                empty_relations(name, each.tables, each.pipeline.view_queries)
                for name, each in sorted(declared.items())
            ],
        )
        return tuple(
            _validated_board(reader, name, board, refused) for name, board in boards.items()
        )


def with_mistakes_of_files(error: SettingsError, start: Path) -> UsageError:
    """Returns one error for a mistake in the settings and all mistakes in the project's files.

    `error` is the error of the settings. The project is searched from the folder `start` upwards.
    The files are only loaded, not validated, because validation needs the settings.
    """
    try:
        project = find_project(start)
    except SettingsError:
        return error
    try:
        with before_joining(NothingJoined):
            found = [*load_files(project).refused.values()]
    except DeclarationError as contradiction:
        found = [contradiction]
    boards = (each for each in boards_in(project).values() if isinstance(each, DeclarationError))
    mistakes: list[UsageError] = [error, *found, *boards]
    return joined_error(mistakes) or error


def ensure_valid(found: Collection[ValidationResult]) -> None:
    """Raises a UsageError that names all refused pipelines and boards, if there are any."""
    refused = [each.name for each in found if each.refused]
    what = "pipelines and boards" if any(each.board for each in found) else "pipelines"
    if refused:
        raise UsageError(f"{len(refused)} of {len(found)} {what} refused: {', '.join(refused)}")


def served_versions(state: State, store: Store) -> Mapping[str, str]:
    """Returns the version of each serving build, by the name of its pipeline."""
    return {pipeline: read_birth(store, build).version for pipeline, build in state.serving.items()}


def validated_text(
    found: Collection[ValidationResult], served: Mapping[str, str] | None = None
) -> str:
    """Formats the results for display: a line per pipeline and board, with refusals and hints.

    `served` maps pipelines to the versions that serve. If `served` is given, a pipeline's line also
    states whether a deploy would change the pipeline.
    """
    lines = []
    for each in found:
        if not each.refused:
            version = f" (version {each.version})" if each.version else ""
            change = "" if served is None or each.board else _change_text(each, served)
            state = f"not checked: {each.not_checked}" if each.not_checked else "valid"
            lines.append(f"{each.name}: {state}{version}{change}")
        for refused in each.refused:
            lines.append(f"{each.name}: refused: {refused.message}")
            lines += [f"  {refused.hint}"] if refused.hint else []
    if not found:
        lines.append("no pipeline is declared: each is a file in pipelines/, beside kappa.toml")
    return "".join(f"{line}\n" for line in lines)


def _change_text(found: ValidationResult, served: Mapping[str, str]) -> str:
    before = served.get(found.name)
    if before is None:
        return ", new"
    return ", unchanged" if before == found.version else f", changed from version {before}"


def validated_listing(found: Collection[ValidationResult]) -> Listing:
    """Returns a listing with a row per pipeline and per board."""
    return Listing(
        ("pipeline", "board", "version", "valid", "refused", "not_checked"),
        tuple(
            (
                each.pipeline,
                each.board,
                each.version,
                each.is_valid,
                [refused.message for refused in each.refused],
                each.not_checked or None,
            )
            for each in found
        ),
    )


def validated_document(found: Collection[ValidationResult]) -> list[dict[str, Any]]:
    """Returns all results as a JSON document. A refusal consists of its message and hint."""
    return [
        {
            "pipeline": each.pipeline,
            "board": each.board,
            "version": each.version,
            "valid": each.is_valid,
            "refused": [
                {"message": refused.message, "hint": refused.hint} for refused in each.refused
            ],
            "not_checked": each.not_checked or None,
        }
        for each in found
    ]


def _validated_pipeline(
    name: str,
    found: Declared | DeclarationError,
    accepting: Allowances,
    uses: Mapping[str, TopicUse],
) -> ValidationResult:
    if isinstance(found, DeclarationError):
        return ValidationResult(
            name, None, tuple(Refusal(name, each.message, each.hint) for each in found.each)
        )
    return ValidationResult(
        name,
        found.version,
        (
            *refused_circle(name, uses),
            *(
                Refusal(
                    name,
                    each.message,
                    f"{each.hint}; or allow it: {allowing_flag(each)}",
                    name=each.name,
                )
                for each in found.doubtful
                if accepting.lets_through(each) is None
            ),
        ),
    )


def _validated_board(
    reader: Reader, name: str, found: Board | DeclarationError, unknown: Sequence[str]
) -> ValidationResult:
    """Validates the file of a board, and runs each query of the board over tables without rows.

    `unknown` contains the names of refused pipelines and files, because their tables are not known.
    """
    if isinstance(found, DeclarationError):
        return ValidationResult(None, None, (Refusal(name, found.message, found.hint),), board=name)
    refused, not_checked = [], ""
    for chart in found.charts:
        try:
            reader.only_select(chart.sql)
            reader.describe_columns(chart.sql)
        except KappaError as error:
            if unknown and isinstance(error.__cause__, CatalogError):
                not_checked = _refused_text(unknown)
                continue
            line = f":{chart.line}" if chart.line else ""
            message = f"{FOLDER}/{name}.toml{line}: chart {chart.title!r}: {error.message}"
            refused.append(Refusal(name, message, error.hint))
    return ValidationResult(
        None, None, tuple(refused), board=name, not_checked="" if refused else not_checked
    )


def _refused_text(names: Sequence[str]) -> str:
    """Returns a clause about refused pipelines and files, such as `pipeline a is refused`."""
    shown = [name if name.endswith(".py") else f"pipeline {name}" for name in names]
    return f"{', '.join(shown)} {'is' if len(shown) == 1 else 'are'} refused"
