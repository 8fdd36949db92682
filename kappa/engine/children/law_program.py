"""A program that tests the law of slices on pipelines.

A spare runs the program. The argument is a folder. replay/rollout/law.py writes request.json to the
folder, and the program writes answer.json. For each pipeline, the answer contains the number of
ways to cut the log that were tested, or an error that refuses the pipeline. Before each test, the
program writes a progress line to stderr.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kappa.base.errors import Broken, DeclarationError, ExitCode
from kappa.base.process import LOW_PRIORITY
from kappa.base.settings import load_settings
from kappa.code.importer import open_sources
from kappa.code.sources import Sources
from kappa.code.spark_child import PROGRESS, begin_pipeline_limits, put_answer
from kappa.declare.pipeline import Pipeline
from kappa.engine.children.describe import loaded_pipelines
from kappa.engine.children.law_cache import has_held, large_slices_key, remember_held
from kappa.engine.children.law_check import LawBroken, hold_to_law
from kappa.engine.children.rehearsal import MemoryLog, local_pipeline
from kappa.engine.spark.session import booted_ahead
from kappa.engine.spark.workers import tell_workers
from kappa.kafka.stored_schemas import open_registry
from kappa.state.store import open_store

# A person waits, and each slice takes the time of a small slice. Empty slices and slices that are
# folded once more do not depend on a pipeline's code.
_SLICES = 4


def main(arguments: list[str]) -> int:
    """Tests the law of slices on the pipelines of a request, and returns the exit code."""
    scratch = Path(arguments[0])
    request = json.loads((scratch / "request.json").read_text(encoding="utf-8"))
    sources = Sources(Path(request["folder"]))
    machine = booted_ahead()
    if request["by_spark"]:
        # Builds that serve meanwhile stay fresh.
        machine.lower_priority(LOW_PRIORITY)
    settings = load_settings(Path(request["folder"]), root=request["root"])
    open_registry(settings, open_store(settings))
    open_sources(sources)
    pipelines = loaded_pipelines(scratch, request["pipelines"], sources)
    spark = machine.session()
    tell_workers(spark)
    for name, answer in tried_in_time(request, pipelines, begin_pipeline_limits):
        put_answer(scratch, name, answer)
    return ExitCode.OK


def tried_in_time(
    request: Mapping[str, Any],
    pipelines: Mapping[str, Pipeline],
    begin: Callable[[str], None],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tests the law of slices on each pipeline, and yields pairs (pipeline name, result).

    A result is a JSON object for the program's answer file. All tests together take about
    `request["seconds"]` seconds. Calls `begin` with the pipeline's name before each test.
    """
    ends_at = time.monotonic() + request["seconds"]
    for number, (name, pipeline) in enumerate(pipelines.items()):
        begin(name)
        began = time.monotonic()
        # The time that a pipeline leaves of its share is left to the pipelines after it.
        share_ends_at = began + (ends_at - began) / (len(pipelines) - number)
        log = MemoryLog()
        for topic, partition, ms, key, value in request["records"][name]:
            log.add(topic, partition, _decoded(value), key=_decoded(key), ms=ms)
        try:
            with local_pipeline(pipeline) as local:
                key = (
                    large_slices_key(local.spark, local.shape, request["declared"][name])
                    if name in request["by_spark"]
                    else None
                )
                by_spark = name in request["by_spark"] and (key is None or not has_held(key))
                held = hold_to_law(
                    local,
                    log,
                    cuts=0,
                    most_slices=_SLICES,
                    by_spark=by_spark,
                    say=partial(_say, name),
                    is_over=partial(_is_past, share_ends_at),
                )
                # Another filter of the same shape may fill a table that is empty here.
                if key is not None and by_spark and held.tried == held.of and held.fills_all:
                    remember_held(key)
            seconds = time.monotonic() - began
            yield name, {"tried": held.tried, "of": held.of, "seconds": seconds}
        except (LawBroken, DeclarationError) as broken:
            yield name, {"message": broken.message, "hint": broken.hint}
        except Broken as broken:
            # The error would stop the replay, too; an example is a function that fails on a record.
            message = f"{broken.message} (in a sample of the log; offsets count its records)"
            yield name, {"message": message, "hint": broken.hint}


def _say(name: str, line: str) -> None:
    print(f"{PROGRESS}runs {name} on a sample: {line}", file=sys.stderr, flush=True)


def _is_past(at: float) -> bool:
    return time.monotonic() >= at


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
