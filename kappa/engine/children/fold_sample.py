"""A program that folds a sample of the log, and stores the rows that readers would see.

A spare runs the program. The argument is a folder. develop/sample_runs.py writes request.json to
the folder, and the records of the sample to another file. The program writes answer.json. For each
pipeline, the answer contains the path of the file with the pipeline's rows, or an error that
refuses the pipeline. The process folds one sample after the other, each with the current files of
the project.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import msgspec

from kappa.base.errors import ExitCode, KappaError
from kappa.base.settings import load_settings
from kappa.code.importer import open_sources
from kappa.code.sources import Sources
from kappa.code.spark_child import begin_pipeline_limits, put_answer
from kappa.engine.children.describe import loaded_pipelines
from kappa.engine.children.rehearsal import MemoryLog, local_pipeline, rows_of_log
from kappa.engine.spark.session import booted_ahead
from kappa.engine.spark.workers import tell_workers
from kappa.kafka.stored_schemas import open_registry
from kappa.records.decode.raw_records import RawRecord
from kappa.state.store import open_store


def main(arguments: list[str]) -> int:
    """Folds the sample of a request with each pipeline of the request. Returns the exit code."""
    scratch = Path(arguments[0])
    request = json.loads((scratch / "request.json").read_text(encoding="utf-8"))
    folder = Path(request["folder"])
    settings = load_settings(folder, root=request["root"])
    open_registry(settings, open_store(settings))
    sources = Sources(folder)
    open_sources(sources)
    pipelines = loaded_pipelines(scratch, request["pipelines"], sources)
    records = msgspec.msgpack.decode(
        Path(request["records"]).read_bytes(), type=dict[str, list[RawRecord]]
    )
    tell_workers(booted_ahead().session(), change=True)
    for name, pipeline in pipelines.items():
        begin_pipeline_limits(name)
        try:
            with local_pipeline(pipeline) as local:
                read = (each for topic in pipeline.topics for each in records[topic.name])
                rows = rows_of_log(local, MemoryLog.of(read))
        except KappaError as refused:
            answer = {"message": refused.message, "hint": refused.hint}
        else:
            file = scratch / f"{name}.rows"
            file.write_bytes(pickle.dumps(rows))
            answer = {"rows": str(file)}
        put_answer(scratch, name, answer)
    return ExitCode.OK
