"""Loads the pipelines of a project from `<project>/pipelines/*.py`.

A file in that folder without a pipeline is a helper module. Loading runs the user's files in this
process. An error in a file becomes a DeclarationError: one sentence with the file and the line.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType

from kappa.base.errors import DeclarationError, joined_error
from kappa.base.fork_call import try_each
from kappa.code.importer import open_sources
from kappa.code.mistakes import mistakes_in
from kappa.code.misuse_errors import explained_misuse, no_name_in
from kappa.code.sources import PIPELINES, Sources
from kappa.declare.alert import Alert
from kappa.declare.pipeline import Pipeline
from kappa.declare.sink import Sink
from kappa.declare.table import Table
from kappa.declare.topic import Topic
from kappa.declare.topic_patterns import is_joining
from kappa.declare.view import View

# A file imports libraries: libraries for data take a few seconds on a busy machine.
_IMPORT_SECONDS = 30.0
_IMPORT_MEMORY = 4 << 30
_NO_NAME = re.compile(r"cannot import name '(.+?)' from ")


@dataclass(frozen=True, slots=True)
class PipelinePlace:
    """The module that declares a pipeline, and the pipeline's attribute in that module."""

    module: str
    attribute: str


@dataclass(frozen=True, slots=True)
class LoadedProject:
    """A project's pipelines by name, and the module and attribute of each pipeline.

    `refused` contains the errors of the files that could not be loaded, by their paths in the
    project.
    """

    sources: Sources
    pipelines: Mapping[str, Pipeline]
    places: Mapping[str, PipelinePlace]
    refused: Mapping[str, DeclarationError] = field(default_factory=dict)

    def ensure_loaded(self) -> None:
        """Raises the DeclarationError of the first file that could not be loaded, if any."""
        for error in self.refused.values():
            raise error


def load_pipelines(project: Path) -> Mapping[str, Pipeline]:
    """Loads the pipelines of the project in the folder `project`, and returns them by name.

    Raises DeclarationError as `load_project` does.
    """
    return load_project(project).pipelines


def load_project(project: Path) -> LoadedProject:
    """Loads all files in `pipelines/`, also those that this process has loaded before.

    Raises DeclarationError as `load_files` does, and also if a file cannot be loaded. The message
    begins with the user's file and line.
    """
    found = load_files(project)
    found.ensure_loaded()
    return found


def load_files(project: Path) -> LoadedProject:
    """Loads all files in `pipelines/`. Collects the errors of files in `refused`.

    The output of the files is written to stderr. An import may run any code, and may never end. So
    each file is first imported in another process, with limits. Raises DeclarationError, with the
    line, if two declarations contradict each other: two pipelines of the same name, two writers of
    a table or of a sink's topic, a topic that is declared in two ways, or a topic that is declared
    both by its name and by a pattern.
    """
    sources = Sources(project)
    open_sources(sources)
    found: dict[str, tuple[Pipeline, PipelinePlace]] = {}
    files = sources.pipeline_files()
    names = {file: f"{PIPELINES}.{file.stem}" for file in files if file.stem.isidentifier()}
    refused = {file: _no_module(file) for file in files if file not in names}
    refused |= _endless_imports(names, sources)
    for file in (each for each in files if each not in refused):
        try:
            module = load_module(names[file], sources)
        except DeclarationError as error:
            # Another error than that of a declaration has a cause.
            more = () if error.__cause__ is not None else mistakes_in(file)
            refused[file] = joined_error((error, *more)) or error
            continue
        for place, pipeline in pipelines_in(module):
            known = found.get(pipeline.name)
            if known is not None and not _is_same(known[0], pipeline, files):
                raise DeclarationError(
                    f"{pipeline.source}: there is another pipeline {pipeline.name}, "
                    f"at {known[0].source}",
                    hint="give one of them another name",
                )
            if known is None or pipeline.source.file == str(file):
                found[pipeline.name] = pipeline, place
    pipelines = {name: pipeline for name, (pipeline, _) in sorted(found.items())}
    _refuse_shared_tables(pipelines)
    _refuse_shared_outlets(pipelines)
    _refuse_differing_topics(pipelines)
    _refuse_overlaps(pipelines)
    return LoadedProject(
        sources,
        pipelines,
        {name: found[name][1] for name in pipelines},
        {
            file.relative_to(sources.folder).as_posix(): error
            for file, error in sorted(refused.items())
        },
    )


def _no_module(file: Path) -> DeclarationError:
    return DeclarationError(
        f"{file}: {file.stem} is not a valid module name",
        hint="name the file with letters, digits and underscores",
    )


def _endless_imports(names: Mapping[Path, str], sources: Sources) -> dict[Path, DeclarationError]:
    """Imports files in a process with limits. Returns errors for files that exceed one.

    `names` maps each file to the name of its module.
    """
    cut = try_each(
        {str(file): partial(load_module, name, sources) for file, name in names.items()},
        seconds=_IMPORT_SECONDS,
        memory=_IMPORT_MEMORY,
    )
    return {
        Path(file): DeclarationError(
            f"{_traced_line(trace, sources.folder) or file}: the lines of {Path(file).name} are "
            "run as "
            f"it is imported, and {error.message}",
            hint="a pipeline's file declares, and computes nothing: put what takes long into its "
            'function, or under: if __name__ == "__main__":',
        )
        for file, (error, trace) in cut.items()
    }


def _traced_line(trace: str, folder: Path) -> str | None:
    """Returns `file:line` of the innermost frame in `folder`, from a trace of `faulthandler`.

    Returns None if no frame is in the folder.
    """
    for file, line in re.findall(r'File "(.+)", line (\d+)', trace):
        if Path(file).is_relative_to(folder):
            return f"{file}:{line}"
    return None


def load_module(name: str, sources: Sources) -> ModuleType:
    """Imports a module from `sources`, and returns the module.

    Call `open_sources` first, which makes the files of `sources` importable. Raises
    DeclarationError, with the line, if the module cannot be run.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except (DeclarationError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        place = sources.locate_module(name)
        where = line_in(error, sources.folder) or (str(place.file) if place else name)
        misused = explained_misuse(error, where)
        if misused is not None:
            # The rest of the file may have further mistakes of declarations.
            raise misused from None
        raise _explained_error(error, sources.folder, where) from error


def load_pipeline(name: str, module: str, sources: Sources) -> Pipeline:
    """Imports a module from `sources`, and returns the module's pipeline `name`.

    Call `open_sources` first, which makes the files of `sources` importable. Raises
    DeclarationError if the module cannot be run or has no such pipeline.
    """
    for _, pipeline in pipelines_in(load_module(module, sources)):
        if pipeline.name == name:
            return pipeline
    raise DeclarationError(f"{module} declares no pipeline {name} any more")


def pipelines_in(module: ModuleType) -> Iterator[tuple[PipelinePlace, Pipeline]]:
    """Yields a pair (place, pipeline) for each pipeline in a loaded module.

    Pipelines that the module imports from other modules are included.
    """
    for attribute, value in list(vars(module).items()):
        if isinstance(value, Pipeline):
            yield PipelinePlace(module.__name__, attribute), value


def line_in(error: BaseException, folder: Path) -> str | None:
    """Returns `file:line` of the innermost frame in `folder`, from an error's traceback.

    Returns None if no frame is in `folder`.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(folder)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def error_line(error: BaseException) -> str:
    """Returns the class name of an error and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _is_same(one: Pipeline, other: Pipeline, files: tuple[Path, ...]) -> bool:
    # Another file imported the pipeline; or its file was loaded again under the bare name.
    return one is other or (one.source == other.source and Path(one.source.file) in files)


def _explained_error(error: BaseException, folder: Path, where: str) -> DeclarationError:
    match error:
        case SyntaxError():
            if error.filename and error.lineno and Path(error.filename).is_relative_to(folder):
                where = f"{error.filename}:{error.lineno}"
            line = (error.text or "").strip()
            return DeclarationError(
                f"{where}: syntax error: {error.msg}", hint=f"in: {line}" if line else ""
            )
        case ImportError(name=str(name)) if (missing := _missing_name(error)) is not None:
            return no_name_in(sys.modules[name], missing, where)
        case ModuleNotFoundError(name=str(name)):
            top = name.partition(".")[0]
            is_installed = top != "kappa" and not any(
                (place / top).is_dir() or (place / f"{top}.py").is_file()
                for place in (folder, folder / PIPELINES)
            )
            return DeclarationError(
                f"{where}: there is no module {name}",
                hint="fix the import"
                + (f", or install what provides it: pip install {top}" if is_installed else ""),
            )
        case _ if _wants_session(error):
            return DeclarationError(
                f"{where}: this needs a running Spark, and a file is read without one",
                hint="make columns inside the function (at the top of a file: only UDFs)",
            )
        case SystemExit():
            return DeclarationError(
                f"{where}: the file ends the process when it is imported",
                hint='put what is only for running it by hand under: if __name__ == "__main__":',
            )
        case _:
            return DeclarationError(
                f"{where}: {error_line(error)}",
                hint="a pipeline's file must import without an error",
            )


def _missing_name(error: ImportError) -> str | None:
    """Returns the name that an import did not find in a module, although the module was loaded.

    Returns None for all other import errors.
    """
    found = _NO_NAME.match(error.msg)
    return found[1] if found is not None and error.name in sys.modules else None


def _wants_session(error: BaseException) -> bool:
    # PySpark reports it in two ways: by this class of error, and by a bare assertion.
    innermost = traceback.extract_tb(error.__traceback__)[-1:]
    return "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error) or (
        isinstance(error, AssertionError)
        and any("/pyspark/" in frame.filename for frame in innermost)
    )


def _refuse_shared_tables(pipelines: Mapping[str, Pipeline]) -> None:
    writers: dict[str, Pipeline] = {}
    for pipeline in pipelines.values():
        writes: tuple[Table | View, ...] = (*pipeline.tables, *pipeline.views)
        for written in writes:
            other = writers.setdefault(written.name, pipeline)
            if other is not pipeline:
                raise DeclarationError(
                    f"{written.source}: {written.name} is written by pipeline {pipeline.name} "
                    f"and by pipeline {other.name}",
                    hint="give one of them another name",
                )


def _refuse_shared_outlets(pipelines: Mapping[str, Pipeline]) -> None:
    known: dict[str, tuple[Sink | Alert, Pipeline]] = {}
    for pipeline in pipelines.values():
        for each in pipeline.outlets:
            _, other = known.setdefault(each.part_name, (each, pipeline))
            if other is not pipeline:
                raise DeclarationError(
                    f"{each.source}: {each.part_name} is declared by pipeline {pipeline.name} and "
                    "by"
                    f" pipeline {other.name}",
                    hint="give one of them another name",
                )


def _refuse_differing_topics(pipelines: Mapping[str, Pipeline]) -> None:
    declared: dict[str, Topic] = {}
    for pipeline in pipelines.values():
        for topic in pipeline.topics:
            other = declared.setdefault(topic.name, topic)
            if other != topic:
                raise DeclarationError(
                    f"{topic.source}: topic {topic.name} is declared differently at {other.source}",
                    hint="declare it once, and import it where it is read",
                )


def _refuse_overlaps(pipelines: Mapping[str, Pipeline]) -> None:
    """Checks that no pattern stands for a topic that another declaration also declares.

    Raises DeclarationError if a pattern matches a topic that is declared by its name, if a sink
    writes to a topic that has joined a pattern, or if a topic has joined two patterns.
    """
    declared = list(pipelines.values())
    sinks = {sink.name: sink for pipeline in declared for sink in pipeline.sinks}
    named = {topic.name: topic for pipeline in declared for topic in pipeline.topics}
    for pattern in (each for pipeline in declared for each in pipeline.patterns):
        for topic in named.values():
            if topic.of_pattern is None and re.fullmatch(pattern.name, topic.name):
                raise DeclarationError(
                    f"{pattern.source}: the pattern {pattern.pattern} matches topic {topic.name},"
                    f" which is declared by its name at {topic.source}",
                    hint="give a narrower pattern, or read both topics by it",
                )
        for joined in () if is_joining() else pattern.joined:
            other = named[joined.name].of_pattern
            if joined.name in sinks:
                raise DeclarationError(
                    f"{pattern.source}: topic {joined.name} has joined the pattern "
                    f"{pattern.pattern}, and the sink at {sinks[joined.name].source} writes it",
                    hint=f"kappa topics join '{pattern.pattern}' --leave {joined.name}",
                )
            if other != pattern.pattern:
                raise DeclarationError(
                    f"{pattern.source}: topic {joined.name} has joined the pattern "
                    f"{pattern.pattern}, and the pattern {other}, too",
                    hint="give narrower patterns",
                )
