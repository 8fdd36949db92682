"""The program of a rehearsal: confines its own process, and runs a project twice on samples.

    python -m kappa.agents.trial_program FOLDER

FOLDER contains request.json and samples of the topics. The program, and the programs that it
starts, can write only in this folder. The program runs the project first as it is, and then with
the agent's files. Then it writes answer.json, which contains the rows that the agent's files add,
remove and change. The agent's code may have written this file, so the reader of answer.json must
treat its content as untrusted data.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kappa.develop.row_changes import TableChange
    from kappa.develop.sample_runs import PipelineRun, ProjectRun

# ruff: noqa: PLC0415  # nothing that starts a thread is imported before the walls stand

_FEW_ROWS = 10
_LONGEST_TEXT = 500


def main(arguments: list[str]) -> int:
    """Runs the rehearsal in the folder that `arguments` contain, and returns the exit code."""
    folder = Path(arguments[0])
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    from kappa.serving.query.sandbox.confine import confine_program

    confine_program(request["readable"], [str(folder), "/dev/null"])
    answer = _rehearse(folder, request)
    coming = folder / "answer.json.coming"
    coming.write_text(json.dumps(answer), encoding="utf-8")
    coming.replace(folder / "answer.json")
    return 0


def _rehearse(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    import msgspec

    from kappa.base.settings import load_settings
    from kappa.develop.child import scratch_child
    from kappa.develop.sample import Sample, Samples
    from kappa.develop.sample_runs import SampleRuns
    from kappa.records.decode.raw_records import RawRecord
    from kappa.state.build import Birth

    project = folder / "project"
    settings = load_settings(project)
    records = msgspec.msgpack.decode(
        (folder / "samples").read_bytes(), type=dict[str, list[RawRecord]]
    )
    known = {name: Sample(name, tuple(found), f"topic {name}") for name, found in records.items()}
    serving = {
        name: msgspec.json.decode(json.dumps(birth), type=Birth)
        for name, birth in request["serving"].items()
    }
    with scratch_child(settings) as scratch:
        runs = SampleRuns(settings, scratch, Samples(project, lambda: None, known), serving=serving)
        # The project as it is may be broken: that is what the change may mend.
        runs.run()
        for name, text in request["given"].items():
            place = project / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return _document(runs.run(), project)


def _document(run: ProjectRun, folder: Path) -> dict[str, Any]:
    return {
        "seconds": round(run.seconds, 1),
        "pipelines": [_pipeline_document(each) for each in run.pipelines],
        "refusals": [
            {
                "pipeline": each.pipeline,
                "message": each.message.replace(f"{folder}/", ""),
                "hint": each.hint.replace(f"{folder}/", ""),
            }
            for each in run.refusals
        ],
    }


def _pipeline_document(run: PipelineRun) -> dict[str, Any]:
    return {
        "pipeline": run.name,
        "plan": list(run.plan),
        "topics": [each.topic for each in run.samples],
        "sample": [each.text for each in run.samples],
        "tables": [_change_document(each) for each in run.changes],
        "unchanged": run.same,
    }


def _change_document(change: TableChange) -> dict[str, Any]:
    return {
        "table": change.table,
        "rows": change.rows,
        "is_new": change.is_new,
        "is_gone": change.is_gone,
        "added": len(change.added),
        "removed": len(change.removed),
        "changed": len(change.changed),
        "added_rows": [_row(each) for each in change.added[:_FEW_ROWS]],
        "removed_rows": [_row(each) for each in change.removed[:_FEW_ROWS]],
        "changed_rows": [
            {"before": _row(before), "after": _row(after)}
            for before, after in change.changed[:_FEW_ROWS]
        ],
    }


def _row(row: Any) -> dict[str, Any]:
    from kappa.serving.query.render import json_value

    shown: Any = json_value(row)
    return {
        name: value[:_LONGEST_TEXT] if isinstance(value, str) else value
        for name, value in shown.items()
    }


if __name__ == "__main__":
    sys.stdout.flush()
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # Threads of libraries, and a child with Spark, may still end.
    os._exit(code)
