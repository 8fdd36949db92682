"""Laws of the command line: the documented exit codes, and errors as one sentence and a hint.

There is never a traceback, and stdout has only the answer.
"""

from __future__ import annotations

import csv
import io
import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from births import make_birth
from deltalake import write_deltalake
from house import HOUSE
from journals import append, state_of
from msgspec import to_builtins
from msgspec.structs import replace
from programs import run_program, run_python
from typing_in import Ended, Kappa, pretend_up

from kappa.base.clock import now
from kappa.base.errors import Conflict, KappaError, VerificationFailed
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.tally import Tally
from kappa.kafka.client import TopicFacts
from kappa.kafka.producer import Acknowledged, ProducedRecord
from kappa.replay.status.context import ProjectContext
from kappa.replay.status.follow import ensure_not_waiting, raise_unless_served, rollout_news
from kappa.replay.status.logs import follow_files
from kappa.state.build import put_birth, read_birth, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Check,
    Event,
    Failed,
    Held,
    Paused,
    PromoteAsked,
    Receipt,
    Served,
    Staged,
    SwitchAsked,
    Switched,
    Verified,
)
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import REJECTS_BIRTH

PIPELINE = """
from kappa import Table, Topic, count, pipeline

HITS = Topic("web.hits", key="page", event="page string not null")

@pipeline(reads={"hits": HITS}, writes=[Table("page_hits", keys=("page",), fold={"hits": count()})])
def web(hits):
    return {"page_hits": hits}
"""
HERE = Offsets({"web.hits": {0: 7}})
CHECK = Check("page_hits", "hits > 0", 3, 0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "pröject"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "kappa.toml").touch()
    (folder / "pipelines" / "web.py").write_text(PIPELINE, encoding="utf-8")
    return folder


@pytest.fixture
def store(project: Path) -> Store:
    return Store(project / ".kappa")


def born(store: Store, build: str, pipeline: str = "web") -> None:
    tables = (TableBirth("page_hits", (("page", "string"),)),)
    put_birth(store, make_birth(build, tables, pipeline=pipeline, version=f"v{build[-1]}"))
    Frontiers(store, build).publish(Frontier(1, build, 1, HERE, {"page_hits": 0}, now()))


def stage(store: Store, build: str, *then: Event, why: str = "new", **more: bool) -> None:
    """Stages build `PIPELINE-NUMBER` of its pipeline; `then` are the next events of the rollout."""
    pipeline, _, number = build.partition("-")
    born(store, build, pipeline)
    append(store, Staged(pipeline, build, f"v{number}", (why,), **more), *then)


def served(rollout: int, generation: int, build: str, live: str | None) -> Served:
    before = None if live is None else HERE
    receipt = Receipt("web", build, f"v{build[-1]}", HERE, live, before, first=live is None)
    return Served(rollout, generation, {"web": build}, receipt)


@pytest.fixture
def two_builds(store: Store) -> Store:
    """Makes build web-2 serve, and web-1 the idle build."""
    passed = Verified(1, "passed", HERE)
    stage(store, "web-1", CaughtUp(1, HERE), passed, served(1, 1, "web-1", None))
    passed = Verified(5, "passed", HERE, (CHECK,))
    stage(store, "web-2", CaughtUp(5, HERE), passed, why="function web changed")
    append(store, Held(5, "web-1", 1), served(5, 2, "web-2", "web-1"))
    return store


@pytest.fixture
def no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the broker's topics end where they begin."""
    log = SimpleNamespace(end=lambda _topics: Offsets())
    monkeypatch.setattr(ProjectContext, "log", lambda _: log)


def test_without_java_up_says_what_to_install(
    kappa: Kappa, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")

    kappa("up", "-d").has(
        1,
        "error: there is no Java on this machine",
        "hint: install it: apt-get install openjdk-17-jre-headless",
    )
    assert not (project / ".kappa" / "logs").exists()


@pytest.mark.parametrize(
    ("typed", "code", "error", "hint"),
    [
        ("nothing", 2, "No such command", "kappa --help"),
        ("tables page_hit", 2, "no pipeline serves a table page_hit", "kappa deploy"),
        ("query -f no.sql", 2, "no.sql cannot be read", "name a file of SQL"),
        ("query 'selec 1'", 2, 'syntax error at or near "selec"', "kappa tables"),
        ("query 'from page_hits'", 2, "page_hits does not exist", "kappa deploy"),
        ("query 'select 1' -o xml", 2, "'xml' is not one of", "kappa query --help"),
        ("status --wach", 2, "No such option", "kappa status --help"),
        ("status -w -o json", 2, "watching shows a table", "leave out -w"),
        ("--project /nowhere tables", 2, "there is no folder /nowhere", "--project"),
        ("--project / tables", 2, "there is no kappa.toml", "touch kappa.toml"),
        ("--root s3://bucket/x tables", 2, "the log of Kappa's own", "bootstrap_servers"),
        ("--root a[1] tables", 2, "which Delta tables cannot have", "another name"),
        ("topics create", 1, "kappa is not up", "kappa up -d"),
        ("topics create web.hit", 2, "declares no topic web.hit", "did you mean web.hits?"),
        ("topics list", 1, "kappa is not up", "kappa up -d"),
        ("produce web.hits -", 1, "kappa is not up", "kappa up -d"),
        ("deploy", 1, "kappa is not up", "kappa up -d"),
        ("replay web", 1, "kappa is not up", "kappa up -d"),
        ("undo", 1, "kappa is not up", "kappa up -d"),
        ("stage", 1, "kappa is not up", "kappa up -d"),
        ("verify web", 1, "kappa is not up", "kappa up -d"),
        ("promote web", 1, "kappa is not up", "kappa up -d"),
        ("retry web", 2, "pipeline web has no rollout to begin again", "kappa plan"),
        ("wait", 2, "no rollout is active", "kappa history"),
        ("abandon", 2, "no rollout is active", "kappa history"),
        ("logs", 2, "no process has written a log yet", "kappa up -d"),
        ("logs supervisor", 2, "supervisor has written no log yet", "kappa up -d"),
        ("logs nobody", 2, "there is no log of nobody", "supervisor, broker"),
        ("show 1", 2, "there is no generation 1", "kappa deploy"),
        ("show last", 2, "Invalid value for 'GENERATION'", "kappa show --help"),
        ("query x --at yesterday", 2, "'yesterday' is not a time", "2026-01-31T14:05:00Z"),
        ("query x --at 2020-01-01T00:00Z", 2, "nothing was served yet at 2020", "kappa deploy"),
        ("query x --at-generation 3", 2, "there is no generation 3", "kappa deploy"),
        (
            "query x --at-generation 3 --at 2020-01-01T00:00Z",
            2,
            "--at-generation and --at were asked for",
            "leave --at",
        ),
        (
            "query x --at-offsets hits:0=3 --at 2020-01-01T00:00Z",
            2,
            "--at and --at-offsets were asked for",
            "leave --at-offsets",
        ),
        ("tables --at-offsets hits:0=3,hits", 2, "'hits' is not an offset of", "orders:0=120"),
        ("tables --at-event-time yesterday", 2, "'yesterday' is not a time", "2026"),
        ("prove web --slices some", 2, "not a way to cut the log", "--slices 20"),
        ("diff web", 2, "no pipeline web is served", "kappa deploy"),
        ("diff web web-1 web-2 --sample -1", 2, "--sample", "kappa diff --help"),
        ("rejects web", 2, "no pipeline web is served", "kappa deploy"),
        ("rejects list web", 2, "no pipeline web is served", "kappa deploy"),
        ("rejects show visits:0", 2, "'visits:0' is not the place of a record", "visits:0:17"),
        ("rejects show hits:0:17", 2, "hits:0:17 is not a reject of what", "kappa rejects list"),
        ("rejects export web new.jsonl", 2, "no pipeline web is served", "kappa deploy"),
        ("rejects export a b c", 2, "3 arguments were given", "[PIPELINE] FILE"),
        ("rejects export kappa.toml", 2, "kappa.toml is there already", "a new file"),
        ("rejects redrive nowhere.jsonl", 2, "nowhere.jsonl cannot be read", "a file"),
        ("rejects redrive /dev/null", 2, "the file has no record", "kappa rejects export"),
        ("rejects redrive pipelines/web.py", 2, "line 2 is not JSON", "one JSON object a line"),
    ],
)
def test_a_slip_is_one_sentence_a_hint_and_its_exit_code(
    kappa: Kappa, typed: str, code: int, error: str, hint: str
) -> None:
    ended = kappa(*shlex.split(typed))

    assert (ended.code, ended.out) == (code, "")
    assert error in ended.err.splitlines()[0]
    assert ended.err.startswith("error: ")
    assert hint in ended.err.partition("\nhint: ")[2]


def test_a_wrong_setting_is_named(kappa: Kappa, project: Path) -> None:
    (project / "kappa.toml").write_text("[kafka]\nbootstrap_server = 'x'\n")
    kappa("tables").has(
        2, "kafka.bootstrap_server is not a setting", "did you mean kafka.bootstrap_servers?"
    )


def test_an_error_in_a_users_file_names_file_and_line(kappa: Kappa, project: Path) -> None:
    (project / "pipelines" / "web.py").write_text("x = 1\nthis is no python\n")
    kappa("topics", "create").has(2, "web.py:2")


def test_help_is_an_answer(kappa: Kappa) -> None:
    ended = kappa("--help")

    assert (ended.code, ended.err) == (0, "")
    told = """up down topics produce plan deploy replay status undo stage retry wait verify promote
        abandon history show diff logs rejects query tables serve gc"""
    assert all(command in ended.out for command in told.split())


def test_the_version_is_that_of_the_package(kappa: Kappa) -> None:
    assert kappa("--version").out == f"kappa {metadata.version('kappa')}\n"


def test_an_answer_goes_into_a_file_by_its_extension(kappa: Kappa, tmp_path: Path) -> None:
    file = tmp_path / "answer.jsonl"

    ended = kappa("query", "from range(2) r(n)", "--out", str(file))

    assert ended == Ended(0, "", f"2 rows written to {file}\n")
    assert file.read_text(encoding="utf-8") == '{"n": 0}\n{"n": 1}\n'
    kappa("query", "select 1", "--out", str(file), "-o", "csv").has(2, "leave out -o csv")


def test_where_nothing_is_there_each_look_is_empty_and_well(kappa: Kappa) -> None:
    assert kappa("query", "select 1 as one", "-o", "csv") == Ended(0, "one\n1\n", "")
    assert kappa("query", "select 1 as one", "-o", "jsonl") == Ended(0, '{"one": 1}\n', "")
    assert kappa("tables", "-o", "jsonl") == Ended(0, "", "")
    assert kappa("tables", "-o", "json") == Ended(0, "[]\n", "")
    assert kappa("history", "-o", "json") == Ended(0, "[]\n", "")
    columns = "pipeline,topic,partition,offset,timestamp,reason,detail,key,value"
    listed = Ended(0, f"{columns},redriven_offset,redrives,headers,build\n", "")
    for typed in (("-o", "csv"), ("list", "-o", "csv"), ("-n", "0", "-o", "csv")):
        assert kappa("rejects", *typed) == listed
    assert kappa("rejects", "export", "-") == Ended(0, "", "no rejects\n")
    assert kappa("rejects") == Ended(0, "no rejects\n", "")
    assert kappa("sinks") == Ended(0, "no sinks\n", "")
    assert kappa("history") == Ended(0, "nothing was deployed yet: kappa deploy\n", "")
    status = kappa("status")
    assert (status.code, status.err) == (0, "")
    assert "kappa is not up: kappa up -d starts it" in status.out
    assert kappa("down").err.endswith("kappa was not up\n")


def test_a_querys_json_tells_what_it_is_true_of(kappa: Kappa) -> None:
    answer = kappa("query", "select 1 as n, null as x, 'ä' as s", "-o", "json").json()

    assert answer["generation"] == 0
    assert answer["builds"] == {}
    assert answer["columns"][0] == {"name": "n", "type": "INTEGER"}
    assert answer["rows"] == [{"n": 1, "x": None, "s": "ä"}]


def test_flags_beat_the_environment_and_the_file(
    kappa: Kappa, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "kappa.toml").write_text("root = 'by_file'\n")
    monkeypatch.setenv("KAPPA__ROOT", "by_environment")
    kappa("tables")
    kappa("--root", "by_flag", "tables")

    assert {path.name for path in project.glob("by_*")} == {"by_environment", "by_flag"}


def test_status_tells_each_wanted_build(kappa: Kappa, two_builds: Store) -> None:
    found = kappa("status", "-o", "json").json()

    assert found["generation"] == 2
    assert found["supervisor"] is None
    assert [
        (each["role"], each["build"], each["state"], each["folded"]) for each in found["builds"]
    ] == [("live", "web-2", "serving", 7), ("idle", "web-1", "kept", 7)]
    assert "web-2" in kappa("status").out


def test_status_tells_what_is_late_and_what_is_a_duplicate_where_there_is_any(
    kappa: Kappa, two_builds: Store
) -> None:
    frontiers = Frontiers(two_builds, "web-2")
    newest = frontiers.newest()
    assert newest is not None
    tally = {0: Tally(decoded=2, duplicate=2, rejected=1, late=1), 1: Tally(duplicate=1_000)}
    frontiers.publish(replace(newest, number=newest.number + 1, tally={"web.hits": tally}))

    live, idle = kappa("status", "-o", "json").json()["builds"]

    told = (live["late"], live["duplicate"], live["rejected"], live["note"])
    assert told == (1, 1_002, 1, "1 late; 1,002 duplicate")
    assert (idle["late"], idle["duplicate"], "late" in idle["note"]) == (0, 0, False)


def test_status_shows_a_candidates_progress_and_each_builds_libraries(
    kappa: Kappa, two_builds: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(two_builds, "web-3", CaughtUp(10, HERE), Verified(10, "passed", HERE, (CHECK,)))
    birth = read_birth(two_builds, "web-2")
    two_builds.put_json(
        "builds/web-2/birth.json",
        to_builtins(replace(birth, libraries={"duckdb": "1", "pyspark": "4"})),
    )
    monkeypatch.setattr(
        "kappa.replay.status.status.installed_libraries", lambda: {"duckdb": "2", "pyspark": "4"}
    )

    live, _, candidate = kappa("status", "-o", "json").json()["builds"]

    assert (candidate["phase"], candidate["folded"], candidate["verdict"]) == ("ready", 7, "passed")
    assert [check["passed"] for check in candidate["checks"]] == [True]
    assert (live["phase"], live["libraries"]) == (None, ["duckdb 1 to 2"])
    assert live["note"] == "born with other libraries: duckdb 1 to 2"


def test_history_tells_every_rollout_with_its_receipt(kappa: Kappa, two_builds: Store) -> None:
    first, second = kappa("history", "-o", "json").json()

    told = (first["generation"], first["build"], first["live_build"], first["state"])
    assert told == (1, "web-1", None, "served")
    told = (second["generation"], second["live_build"], second["why"])
    assert told == (2, "web-1", "function web changed")
    more = {"error": "", "columns": [], "samples": [], "passed": True}
    assert second["checks"] == [{**to_builtins(CHECK), **more}]
    assert second["live_offsets"] == {"web.hits": {"0": 7}}
    assert "function web changed" in kappa("history").out


def test_history_is_that_of_a_pipeline_and_of_the_newest(kappa: Kappa, two_waiting: Store) -> None:
    def numbers(*arguments: str) -> list[int]:
        return [each["rollout"] for each in kappa("history", *arguments, "-o", "json").json()]

    assert numbers("web") == [1, 2, 3]
    assert numbers("--limit", "2") == [3, 4]
    assert numbers("web", "-n", "1") == [3]
    kappa("history", "wbe").has(2, "hint: did you mean web?")


# The fields of the documents that docs/howto/scripts.md promises.
ROLLOUT_FIELDS = [
    *("pipeline", "rollout", "build", "version", "generation", "state"),
    *("verdict", "given_reasons", "reason", "hint"),
]


@pytest.mark.usefixtures("no_records")
def test_a_command_of_a_rollout_answers_with_one_document(kappa: Kappa, waiting: Store) -> None:
    """Commands of a rollout answer with the same document, even after an error.

    Stdout has nothing else.
    """
    ready = kappa("wait", "web", "-q", "-o", "json")
    assert (ready.code, ready.err) == (0, "")
    values = ["web", 3, "web-3", "v3", None, "ready", "passed", [], "", ""]
    assert ready.json() == [dict(zip(ROLLOUT_FIELDS, values, strict=True))]
    late = kappa("promote", "web", "--yes", "-m", "go", "--timeout", "0", "-q", "-o", "json")
    assert (late.code, late.json()[0]["given_reasons"]) == (5, ["go"])
    given_up = kappa("abandon", "web", "--reason", "not good", "-o", "json")
    (ended,) = given_up.json()
    assert (ended["state"], ended["reason"]) == ("abandoned", "not good")
    failed = kappa("wait", "3", "-o", "json")
    assert (failed.code, failed.json()) == (6, [ended])
    undone = kappa("undo", "web", "--yes", "--timeout", "0", "-m", "v2 is slow", "-o", "json")
    (asked,) = undone.json()
    assert (undone.code, asked["build"], asked["state"]) == (5, "web-1", "ready")
    assert (asked["given_reasons"], list(asked)) == (["v2 is slow"], ROLLOUT_FIELDS)
    assert "v2 is slow; undo" in kappa("history").out
    (row,) = csv.DictReader(io.StringIO(kappa("wait", "1", "-o", "csv").out))
    assert (row["generation"], row["state"]) == ("1", "served")


def test_a_question_is_no_part_of_the_document(kappa: Kappa, waiting: Store) -> None:
    for typed in (("promote", "-o", "json"), ("undo", "web")):
        kappa(*typed).has(7)
    assert kappa("promote", "-o", "json").out == ""


def test_a_retirement_answers_with_its_document(kappa: Kappa, two_tables: Store) -> None:
    done = kappa("retire", "web", "--yes", "-m", "replaced by ads", "-o", "json")

    (retired,) = done.json()
    assert list(retired) == [*ROLLOUT_FIELDS[:6], "given_reasons", "tables", "kept_until"]
    assert (retired["build"], retired["generation"], retired["state"]) == ("web-2", 3, "retired")
    assert (retired["given_reasons"], retired["tables"]) == (["replaced by ads"], ["page_hits"])
    # Asked for once more, the answer is the same.
    assert kappa("retire", "web", "--yes", "-o", "json").json() == [retired]
    assert "reason: replaced by ads" in kappa("show", "3").out
    assert kappa("history", "-o", "json").json()[-1]["why"] == "replaced by ads; page_hits left"


def test_a_generation_is_shown_in_full(kappa: Kappa, two_builds: Store) -> None:
    found = kappa("show", "2", "-o", "json").json()

    (switched,) = found["switched"]
    assert (found["generation"], found["previous_generation"]) == (2, 1)
    assert (switched["pipeline"], switched["build"], switched["version"]) == ("web", "web-2", "v2")
    told = (switched["rollout"], switched["first"], switched["asked_by"])
    assert told == (2, False, found["served_by"])
    place = {"pipeline": "web", "topic": "web.hits", "partition": 0}
    assert found["offsets"] == [{**place, "origin": 0, "before": 7, "after": 7}]
    assert found["builds"]["web"]["previous_build"] == "web-1"
    assert found["builds"]["web"]["code"]["folder"].endswith(".kappa/builds/web-2/code")
    assert len(found["builds"]["web"]["code"]["sha256"]) == 64
    assert found["record"]["event"]["kind"] == "served"
    assert found["record"]["event"]["receipt"]["live_offsets"] == {"web.hits": {"0": 7}}
    text = kappa("show", "1").out
    assert "web: build web-1 (version v1), its first" in text
    assert "generations are numbered 1 to 2" in kappa("show", "3").err


def test_a_generation_is_shown_with_what_was_let_through_for_it(
    kappa: Kappa, two_builds: Store
) -> None:
    let_through = "pipelines/web.py:12 uses time.time, which reads the clock: it is only logged"
    born(two_builds, "web-3")
    append(
        two_builds,
        Staged("web", "web-3", "v3", ("new",), (let_through,)),
        CaughtUp(10, HERE),
        Verified(10, "passed", HERE),
        Held(10, "web-2", 1),
        served(10, 3, "web-3", "web-2"),
    )

    assert f"let through: {let_through}" in kappa("show", "3").out
    shown = kappa("show", "3", "-o", "json").json()
    assert shown["switched"][0]["accepted"] == [let_through]


@pytest.mark.usefixtures("no_records")
def test_a_rollout_whose_build_serves_again_by_an_undo_names_its_own_generation(
    kappa: Kappa, two_builds: Store
) -> None:
    undo = SwitchAsked("web", "web-1", "undo")
    append(two_builds, undo, Held(10, "web-2", 1), served(10, 3, "web-1", "web-2"))

    of_build = "web: build web-1 (version v1)"
    assert [kappa("wait", number).out for number in ("1", "3")] == [
        f"{of_build} served, generation 1; now build web-1 serves, generation 3\n",
        f"{of_build} serves, generation 3\n",
    ]


@pytest.mark.usefixtures("no_records")
def test_who_waits_for_what_has_ended_already_is_told_how(kappa: Kappa, two_builds: Store) -> None:
    ended = kappa("wait", "web")
    assert (ended.code, ended.out) == (0, "web: build web-2 (version v2) serves, generation 2\n")
    ended = kappa("wait", "1").has(0)
    assert ended.out == (
        "web: build web-1 (version v1) served, generation 1; now build web-2 serves, generation 2\n"
    )

    failed = Verified(10, "failed", Offsets(), reason="3 rows do not satisfy: hits > 0")
    stage(two_builds, "web-3", CaughtUp(10, Offsets()), failed)

    for arguments in (["web"], []):
        kappa("wait", *arguments).has(4, "3 rows do not satisfy: hits > 0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "code", "says"),
    [(">&-", 0, ""), (">/dev/full", 1, "error: No space left on device")],
)
def test_where_nothing_can_be_printed_is_no_traceback(
    project: Path, two_builds: Store, redirected: str, code: int, says: str
) -> None:
    done = run_program(
        "sh", "-c", f'"{sys.executable}" "{HOUSE / "cli.py"}" history {redirected}', folder=project
    )

    assert (done.returncode, says in done.stderr) == (code, True)
    assert "Traceback" not in done.stderr
    assert says or not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "typed", "says"),
    [
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", "history", "error: Too many open"),
        ("sys.modules['obstore.store'] = None", "history", "error: obstore.store cannot be loaded"),
        (
            "resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))",
            "query 'select 1'",
            "hint: give the process more memory",
        ),
    ],
)
def test_where_files_or_memory_end_is_no_traceback(
    project: Path, two_builds: Store, before: str, typed: str, says: str
) -> None:
    arguments = ["kappa", *shlex.split(typed)]
    typed_in = f"import resource, sys, cli; {before}; sys.argv = {arguments}; cli.main()"
    done = run_python("-c", typed_in, folder=project, PYTHONPATH=str(HOUSE))

    assert (done.returncode, f"\n{says}" in f"\n{done.stderr}") == (1, True), done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_what_is_kept_no_longer_is_said_with_what_is(kappa: Kappa, two_builds: Store) -> None:
    # Long after the switch: within its millisecond the answer would be the frontier of then.
    at = "2999-01-01T00:00:00.000+00:00"
    Frontiers(two_builds, "web-1").publish(
        Frontier(2, "web-1", 1, Offsets({"web.hits": {0: 9}}), {"page_hits": 1}, at)
    )

    kappa("query", "select 1", "--at-generation", "1").has(
        1,
        "what generation 1 showed last is not kept any more",
        "hint: there is: generation 2 from ",
    )


def test_a_time_without_a_zone_is_said_to_be_utc(kappa: Kappa) -> None:
    told = kappa("query", "select 1", "--at", "2020-01-01 00:00").err
    assert "2020-01-01 00:00 is taken as UTC" in told


def test_gc_says_what_it_would_delete_and_then_deletes_it(kappa: Kappa, two_builds: Store) -> None:
    two_builds.put("builds/web-1/spark/left", b"12345")
    would = kappa("gc", "--dry-run", "-o", "json").json()
    assert (would["dry_run"], would["bytes"]) == (True, 5)
    assert two_builds.get("builds/web-1/spark/left") == b"12345"

    done = kappa("gc", "-o", "json").json()

    assert [
        (each["build"], each["what"], each["count"], each["note"]) for each in done["found"]
    ] == [("web-1", "scratch of a job", 1, "deleted")]
    assert kappa("gc", "-o", "json").json()["found"] == []


def test_gc_asks_on_a_terminal(
    kappa: Kappa, two_builds: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = "builds/web-1/spark/left"
    two_builds.put(left, b"12345")
    for answer, code, there in (("n\n", 7, True), ("y\n", 0, False)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        kappa("gc").has(code, "delete these?", out="would be deleted")
        assert (two_builds.get(left) is not None) == there
    # With nothing to delete there is no question.
    assert kappa("gc") == Ended(0, "nothing to delete\n", "")
    two_builds.put(left, b"12345")
    assert "deleted" in kappa("gc", "--yes").out


def test_status_tells_until_when_the_idle_build_is_kept_and_what_a_rollout_waits_for(
    kappa: Kappa, two_builds: Store
) -> None:
    stage(two_builds, "web-3")
    two_builds.put_json(
        "run/underway.json",
        {
            "rollouts": {"10": {"waits_for": "its Spark to start", "rate": 5.0}},
            "deaths": {"web-3": {"count": 3, "last": "exit code 1"}},
        },
    )
    _, idle, candidate = kappa("status", "-o", "json").json()["builds"]
    assert datetime.fromisoformat(idle["kept_until"]) - timedelta(seconds=3600) <= datetime.now(UTC)
    assert idle["note"].startswith("kept until 20")
    # No process runs that keeps it true.
    assert (candidate["waits_for"], candidate["rate"], candidate["trouble"]) == ("", None, "")

    pretend_up(two_builds)
    *_, candidate = kappa("status", "-o", "json").json()["builds"]

    assert (candidate["waits_for"], candidate["rate"]) == ("its Spark to start", 5.0)
    assert candidate["note"] == (
        "its job died 3 times, last: exit code 1; see kappa logs web-3; "
        "waits for its Spark to start"
    )


def test_an_undo_needs_a_yes_and_prints_what_it_will_do(kappa: Kappa, two_builds: Store) -> None:
    pretend_up(two_builds)
    kappa("undo", "web").has(
        7, "kappa undo web --yes", out="build web-1 (version v1) will serve instead of web-2"
    )
    assert state_of(two_builds).active("web") is None


@pytest.fixture
def two_tables(two_builds: Store) -> Store:
    """Returns the two builds with the files of their tables, two rows each."""
    for build in ("web-1", "web-2"):
        birth = read_birth(two_builds, build)
        born_with = replace(birth, tables=(*birth.tables, REJECTS_BIRTH))
        two_builds.put_json(f"builds/{build}/birth.json", to_builtins(born_with))
        newest = Frontiers(two_builds, build).newest()
        assert newest is not None
        versions = {"page_hits": 0, "rejects": 0}
        Frontiers(two_builds, build).publish(replace(newest, number=2, versions=versions))
        rejects = arrow_schema(REJECTS_BIRTH.columns).empty_table()
        hits = pa.table({"page": ["/", "/about"]})
        for table, rows in (("page_hits", hits), ("rejects", rejects)):
            write_deltalake(table_path(two_builds, build, table), rows)
    return two_builds


def test_a_retirement_shows_what_leaves_asks_and_is_undone(kappa: Kappa, two_tables: Store) -> None:
    kappa("retire", "web").has(
        7,
        "kappa retire web --yes",
        out=(
            "table page_hits: 2 rows, 1 file, ",
            "build web-1, kept for an undo of the last switch, is retired at once",
        ),
    )
    assert state_of(two_tables).generation == 2

    done = kappa("retire", "web", "--yes").has(
        0, out=("web was retired at generation 3", "kappa undo web brings it back until")
    )
    assert kappa("retire", "web", "--yes").out.splitlines() == done.out.splitlines()[-1:]

    kappa("query", "from page_hits").has(
        2, "table page_hits is served no more: pipeline web was retired at generation 3"
    )
    (row,) = kappa("status", "-o", "json").json()["builds"]
    assert (row["role"], row["build"]) == ("idle", "web-2")
    assert "pipeline retired at generation 3" in row["note"]
    assert "pipeline web was retired: page_hits left" in kappa("show", "3").out
    told = kappa("history", "-o", "json").json()[-1]
    assert (told["what"], told["state"], told["generation"]) == ("retire", "retired", 3)
    assert kappa("show", "3", "-o", "json").json()["previous_generation"] == 2

    pretend_up(two_tables)
    undo = kappa("undo", "web")
    assert "web-2 (version v2) will serve again, after it was retired" in undo.out


def test_a_pause_is_said_everywhere_and_takes_no_second_record(
    kappa: Kappa, two_tables: Store
) -> None:
    assert kappa("resume", "web").out == "web is not paused\n"
    paused = kappa("pause", "web").has(0, out=("web is paused since", "kappa resume web"))
    assert kappa("pause", "web").out == paused.out

    rows = kappa("status", "-o", "json").json()["builds"]
    assert [row["state"] for row in rows] == ["serving, paused", "kept, paused"]
    assert all(row["paused_since"] for row in rows)
    assert "kappa resume web goes on" in rows[0]["note"]
    assert kappa("tables", "-o", "json").json()[0]["paused_since"] == rows[0]["paused_since"]
    assert "paused_since" in kappa("tables").out

    assert "web is resumed" in kappa("resume", "web").out
    assert "paused_since" not in kappa("tables").out
    told = [row["what"] for row in kappa("history", "-o", "json").json()]
    assert told[-2:] == ["pause", "resume"]


@pytest.mark.parametrize("command", ["retire", "pause"])
def test_what_is_on_its_way_is_neither_retired_nor_paused(
    kappa: Kappa, waiting: Store, command: str
) -> None:
    kappa(command, "web", *(["--yes"] if command == "retire" else [])).has(
        6, "of pipeline web has not ended", "kappa abandon web"
    )


@pytest.mark.parametrize("command", ["retire", "pause", "resume"])
def test_a_pipeline_that_never_served_is_named_with_those_that_do(
    kappa: Kappa, two_builds: Store, command: str
) -> None:
    kappa(command, "nobody").has(2, "no build of pipeline nobody serves", "there are web")


@pytest.fixture
def waiting(two_builds: Store) -> Store:
    """Makes a build web-3 that has passed verification and waits for a yes."""
    passed = Verified(10, "passed", HERE, (CHECK,))
    why = "table page_hits changed"
    stage(two_builds, "web-3", CaughtUp(10, HERE), passed, why=why, auto_promote=False)
    pretend_up(two_builds)
    return two_builds


def test_a_candidate_that_passed_waits_and_is_shown_before_the_yes(
    kappa: Kappa, waiting: Store
) -> None:
    kappa("wait", "web").has(0, out="to let it serve: kappa promote web")
    kappa("promote").has(7, "kappa promote --yes", out="page_hits: hits > 0: 3 rows pass")

    kappa("promote", "web", "--yes", "--timeout", "0").has(5)
    assert state_of(waiting).rollouts[-1].approved
    kappa("promote", "web", "--yes").has(6, "is on its way to serve")


@pytest.fixture
def two_waiting(waiting: Store) -> Store:
    """Adds a waiting first build of another pipeline, as rollout 4 (record 13)."""
    passed = Verified(13, "passed", HERE)
    stage(waiting, "ads-1", CaughtUp(13, HERE), passed, auto_promote=False)
    return waiting


def test_candidates_that_are_named_together_get_one_yes(kappa: Kappa, two_waiting: Store) -> None:
    kappa("promote", "--yes").has(
        2, "there are several pipelines: ads, web", "kappa promote ads web"
    )
    for names in (("web", "nothing"), ("nothing", "web")):
        kappa("promote", *names, "--yes").has(
            2,
            "pipeline nothing has no active rollout",
            "it never had one; these pipelines had: ads, web",
        )
    before = state_of(two_waiting).last
    assert before == 15

    kappa("promote", "web", "ads", "--yes", "--timeout", "0").has(5)
    assert [record.event for record in Journal(two_waiting).after(before)] == [
        PromoteAsked(10, (13,))
    ]
    kappa("promote", "ads", "--yes").has(6, "is on its way to serve")


def test_what_was_promoted_together_is_told_of_each_and_undone_by_itself(
    kappa: Kappa, two_waiting: Store
) -> None:
    web = served(10, 3, "web-3", "web-2")
    ads = Switched(13, Receipt("ads", "ads-1", "v1", HERE, None, None, first=True))
    append(
        two_waiting,
        PromoteAsked(10, (13,)),
        Held(10, "web-2", 1, (13,)),
        replace(web, serving={"web": "web-3", "ads": "ads-1"}, others=(ads,)),
    )

    told = {
        chapter["rollout"]: (chapter["pipeline"], chapter["generation"], chapter["state"])
        for chapter in kappa("history", "-o", "json").json()
    }
    assert (told[3], told[4]) == (("web", 3, "served"), ("ads", 3, "served"))
    shown = kappa("show", "3").out
    assert "web: build web-3 (version v3) instead of web-2, which generation 2 served" in shown
    assert "ads: build ads-1 (version v1), its first" in shown
    assert [
        (each["pipeline"], each["before"], each["after"])
        for each in kappa("show", "3", "-o", "json").json()["offsets"]
    ] == [("web", 7, 7), ("ads", None, 7)]
    undone = kappa("undo", "--yes", "--timeout", "0").out
    assert "web: build web-2 (version v2) will serve instead of web-3" in undone


def test_every_command_takes_the_number_of_a_rollout(kappa: Kappa, two_waiting: Store) -> None:
    assert "rollout 3: build web-3 of pipeline web" in kappa("wait", "3").err
    assert "ads-1" in kappa("wait", "4").out
    told = "error: web-3 has written no log yet\nhint: start it with: kappa up -d\n"
    assert kappa("logs", "3").err == told
    assert kappa("show", "--rollout", "2").out == kappa("show", "2").out
    assert [each["rollout"] for each in kappa("history", "-o", "json").json()] == [1, 2, 3, 4]
    found = kappa("status", "-o", "json").json()["builds"]
    numbers = {each["build"]: each["rollout"] for each in found if each["rollout"]}
    assert numbers == {"web-3": 3, "ads-1": 4}
    kappa("undo", "2", "--yes").has(6)
    kappa("promote", "3", "4", "--yes", "--timeout", "0").has(5)
    assert next(iter(Journal(two_waiting).after(15))).event == PromoteAsked(10, (13,))
    assert kappa("abandon", "3").err == "rollout 3 is given up\n"
    kappa("verify", "4", "--timeout", "0").has(5)
    kappa("wait", "3").has(6)


@pytest.mark.parametrize(
    ("typed", "says", "hint"),
    [
        ("wait 6", "there is no rollout 6", "rollouts are numbered 1 to 4: kappa history"),
        ("prove 1", "rollout 1 does not serve pipeline web: rollout 2 does", "kappa history"),
        ("diff 3 9", "there is no rollout 9", "rollouts are numbered 1 to 4"),
        ("rejects 9", "there is no rollout 9", "rollouts are numbered 1 to 4"),
        ("rejects --build 9", "there is no rollout 9", "rollouts are numbered 1 to 4"),
        ("retry 9", "there is no rollout 9", "rollouts are numbered 1 to 4"),
        ("deploy 3", "3 is the number of a rollout, and kappa deploy", "kappa history shows"),
        ("replay 3", "3 is the number of a rollout, and kappa replay", "kappa history shows"),
        ("plan web 3", "3 is the number of a rollout, and kappa plan", "kappa history"),
        ("show", "a generation is named by its number", "kappa show GENERATION"),
    ],
)
def test_a_number_that_is_not_meant_is_refused_with_what_to_type(
    kappa: Kappa, two_waiting: Store, typed: str, says: str, hint: str
) -> None:
    refused = kappa(*typed.split())

    assert (refused.code, state_of(two_waiting).last) == (2, 15)
    assert says in refused.err
    assert hint in refused.err.partition("\nhint: ")[2]


def test_who_has_lost_the_yes_is_told_why(kappa: Kappa, two_waiting: Store) -> None:
    append(two_waiting, PromoteAsked(10, (13,)))
    kappa("abandon", "ads").has(0)

    lost = state_of(two_waiting).rollout(10)

    with pytest.raises(KappaError, match="not promoted: rollout 4 of .* was abandoned") as told:
        ensure_not_waiting(lost)
    assert "kappa promote web" in told.value.hint
    assert "was abandoned" in kappa("status").out


class Asked(io.StringIO):
    """A terminal at which an operator types yes after another operator has acted."""

    def __init__(self, other: Callable[[], None]) -> None:
        super().__init__("y\n")
        self.other = other

    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:
        self.other()
        return super().readline(size)


@pytest.mark.parametrize(
    ("command", "meanwhile", "says", "hint"),
    [
        (
            "promote",
            [PromoteAsked(10)],
            "ada@home was first: rollout 3 of pipeline web, begun by",
            "kappa wait web",
        ),
        (
            "promote",
            [Abandoned(10, "not good")],
            "ada@home was first: rollout 3 of pipeline web was given up: not good",
            "kappa deploy web",
        ),
        (
            "undo",
            [Abandoned(10, "no"), Staged("web", "web-4", "v4", ("new",))],
            "rollout 4 of pipeline web has not ended: ada@home was first, it is replaying",
            "kappa abandon web",
        ),
    ],
)
def test_who_is_overtaken_while_being_asked_exits_6_and_learns_who_and_what_now(
    kappa: Kappa,
    waiting: Store,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    meanwhile: list[Event],
    says: str,
    hint: str,
) -> None:
    def ada() -> None:
        with monkeypatch.context() as hers:
            hers.setenv("KAPPA_BY", "ada@home")
            append(waiting, *meanwhile)

    monkeypatch.setattr(sys, "stdin", Asked(ada))
    ended = kappa(command, "web").has(6, says)
    assert hint in ended.err.partition("\nhint: ")[2]
    assert state_of(waiting).last == 12 + len(meanwhile)


def test_a_verification_once_more_takes_the_yes_back(kappa: Kappa, waiting: Store) -> None:
    kappa("verify", "--timeout", "0").has(5)
    kappa("promote", "web", "--yes").has(6)
    kappa("abandon").has(0)


def test_a_rollout_that_outlives_our_patience_goes_on_and_a_second_one_is_refused(
    kappa: Kappa, two_builds: Store
) -> None:
    pretend_up(two_builds)
    kappa("undo", "--yes", "--timeout", "0").has(5, "kappa status -w")

    kappa("undo", "--yes").has(6, "has not ended")

    kappa("abandon", "web").has(0)
    assert kappa("history", "-o", "json").json()[-1]["state"] == "abandoned"
    kappa("abandon").has(2)


def test_waiting_has_an_end_and_the_rollout_goes_on(kappa: Kappa, two_builds: Store) -> None:
    stage(two_builds, "web-3")
    pretend_up(two_builds)

    waited = kappa("wait", "web", "--timeout", "0").has(5)
    told = "hint: it goes on: kappa status -w follows it, kappa abandon web gives it up\n"
    assert f"error: rollout 3 is still replaying after 0 s\n{told}" in waited.err
    assert (state_of(two_builds).rollout(10).active, state_of(two_builds).last) == (True, 10)


def test_an_undo_to_a_generation_is_to_the_build_that_served_in_it(
    kappa: Kappa, two_builds: Store
) -> None:
    pretend_up(two_builds)
    nothing = kappa("undo", "web", "--to", "2", "--yes")
    assert (nothing.code, nothing.out) == (2, "")
    assert "pipeline web of generation 2 serves now: there is nothing to undo" in nothing.err
    assert "there is no generation 3" in kappa("undo", "--to", "3", "--yes").err
    assert "to continue: kappa undo --to 1 --yes" in kappa("undo", "--to", "1").err

    kappa("undo", "--to", "1", "--yes", "--timeout", "0").has(
        5, out="build web-1 (version v1) will serve instead of web-2"
    )
    assert [record.event for record in Journal(two_builds).after(9)] == [
        SwitchAsked("web", "web-1", "undo")
    ]


def test_undo_of_what_was_never_switched_is_a_slip(kappa: Kappa, store: Store) -> None:
    pretend_up(store)
    kappa("undo", "--yes").has(2, "no build has served before")


def test_logs_of_all_begin_with_their_process(kappa: Kappa, two_builds: Store) -> None:
    two_builds.put("logs/web-2.log", b"".join(b"line %d\n" % number for number in range(9)))
    two_builds.put("logs/supervisor.log", b"up\nhalf a li")
    # Nothing needs that build any more.
    two_builds.put("logs/web-0.log", b"old\n")

    assert kappa("logs", "-n", "2").out.splitlines() == [
        "supervisor | up",
        "web-2      | line 7",
        "web-2      | line 8",
    ]


def test_logs_of_all_are_followed(two_builds: Store, tmp_path: Path) -> None:
    """Whole lines are yielded; a new log, or one that was begun again, is read from its start."""
    files = {name: tmp_path / f"{name}.log" for name in ("first", "second")}
    files["first"].write_bytes(b"before\nhalf")
    found = follow_files(
        lambda: {name: path for name, path in files.items() if path.exists()}, {"first": 7}
    )
    for name, content, line in (
        ("first", b"before\nhalf a line\n", b"half a line\n"),
        ("second", b"new\n", b"new\n"),
        ("first", b"anew\n", b"anew\n"),
    ):
        files[name].write_bytes(content)
        assert next(found) == (name, line)


def test_logs_are_found_by_pipeline_and_build_and_cut_from_their_end(
    kappa: Kappa, two_builds: Store
) -> None:
    two_builds.put("logs/web-2.log", "".join(f"zeile {n} ä\n" for n in range(5000)).encode())

    assert kappa("logs", "web", "-n", "2").out == "zeile 4998 ä\nzeile 4999 ä\n"
    assert kappa("logs", "web-2", "-n", "5000").out.count("\n") == 5000
    assert kappa("logs", "web-2", "-n", "0").out == ""
    assert "web-1 has written no log yet" in kappa("logs", "web-1").err


def test_a_missing_file_to_produce_is_named(kappa: Kappa, store: Store) -> None:
    pretend_up(store)
    kappa("produce", "web.hits", "/nowhere/x.jsonl").has(
        2, "/nowhere/x.jsonl cannot be read: No such file"
    )


class Sent:
    """A broker's client with two topics of seven records, which acknowledges everything."""

    largest_record = 1_000_000

    def __init__(self) -> None:
        self.records: list[ProducedRecord] = []

    def topics(self) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, f"id of {name}", 1) for name in ("web.hits", "web.misses")}

    def beginning(self, topics: Iterable[str]) -> Offsets:
        return Offsets({name: {0: 3} for name in topics})

    def end(self, topics: Iterable[str]) -> Offsets:
        return Offsets({name: {0: 10} for name in topics})

    def produce(
        self, records: Iterable[ProducedRecord], topic: str, *, on_progress: Callable[[int], None]
    ) -> Acknowledged:
        self.records = list(records)
        on_progress(len(self.records))
        return Acknowledged(len(self.records), Offsets({topic: {0: 10 + len(self.records)}}))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    broker = Sent()
    monkeypatch.setattr(ProjectContext, "log", lambda _: broker)
    return broker


def test_produced_records_are_counted_and_reach_the_printed_offsets(
    kappa: Kappa, project: Path, sent: Sent
) -> None:
    (project / "hits.jsonl").write_text('{"page": "/a"}\n\n{"page":  "/b"}\n')

    produced = kappa("produce", "web.hits", "hits.jsonl", "-o", "csv")

    assert (produced.code, produced.out) == (0, "topic,partition,next_offset\nweb.hits,0,12\n")
    assert "2 records acknowledged" in produced.err
    assert "token web.hits:0=12: kappa query --after web.hits:0=12 waits for them" in produced.err
    assert sent.records == [
        ProducedRecord(b'{"page": "/a"}', b"/a"),
        ProducedRecord(b'{"page":  "/b"}', b"/b"),
    ]
    assert kappa("produce", "web.hits", "hits.jsonl", "-o", "json").json() == {
        "acknowledged": 2,
        "offsets": {"web.hits": {"0": 12}},
        "token": "web.hits:0=12",
    }


def show(store: Store, build: str, offset: int) -> None:
    """Publishes the next frontier of a build."""
    newest = Frontiers(store, build).newest()
    assert newest is not None
    offsets = Offsets({"web.hits": {0: offset}})
    Frontiers(store, build).publish(replace(newest, number=newest.number + 1, offsets=offsets))


def test_a_query_after_a_write_is_answered_from_a_frontier_that_covers_it(
    kappa: Kappa, two_tables: Store, project: Path, sent: Sent
) -> None:
    (project / "hits.jsonl").write_text('{"page": "/a"}\n')
    show(two_tables, "web-2", 11)

    token = kappa("produce", "web.hits", "hits.jsonl", "--wait", "-o", "json").json()["token"]
    answered = kappa(
        "query", "select count(*) as n from page_hits", "--after", token, "-o", "json"
    ).json()

    assert token == "web.hits:0=11"
    assert answered["rows"] == [{"n": 2}]
    assert answered["builds"]["web"]["offsets"] == {"web.hits": {"0": 11}}
    assert len(sent.records) == 1


def test_a_write_that_is_not_shown_in_time_is_written_all_the_same(
    kappa: Kappa, two_builds: Store, project: Path, sent: Sent
) -> None:
    (project / "hits.jsonl").write_text('{"page": "/a"}\n')

    ended = kappa(
        "produce", "web.hits", "hits.jsonl", "--wait", "--timeout", "0", "-o", "json"
    ).has(5)
    assert ended.json()["token"] == "web.hits:0=11"
    assert "error: 1 record is acknowledged, and readers do not see all of them" in ended.err
    late = "after 0 s web (build web-2) shows web.hits:0=7, not yet web.hits:0=11"
    assert late in ended.err
    assert "kappa up -d" in ended.err
    assert len(sent.records) == 1

    pretend_up(two_builds)
    append(two_builds, Paused("web"))
    ended = kappa("query", "select 1", "--after", "web.hits:0=11", "--timeout", "0")
    assert (ended.code, ended.out) == (5, "")
    assert "kappa resume web" in ended.err
    assert "kappa up" not in ended.err


def test_nothing_is_sent_where_a_wait_would_have_no_end(
    kappa: Kappa, project: Path, sent: Sent
) -> None:
    (project / "hits.jsonl").write_text('{"page": "/a"}\n')

    kappa("produce", "web.hits", "hits.jsonl", "--wait").has(2, "nothing is served yet")
    assert sent.records == []


@pytest.mark.parametrize(
    ("flags", "error", "hint"),
    [
        ("--after 17", "'17' is not an offset of a partition", "orders:0=120"),
        ("--after web.misses:0=1", "nothing that serves reads topic web.misses", "web.hits"),
        ("--timeout 3", "--timeout is for --after", "--after TOKEN"),
        ("--after web.hits:0=1 --at-generation 1", "--at-generation and", "leave --after out"),
    ],
)
def test_a_wait_that_cannot_be_meant_is_refused_at_once(
    kappa: Kappa, two_builds: Store, flags: str, error: str, hint: str
) -> None:
    ended = kappa("query", "select 1", *flags.split())

    assert (ended.code, ended.out) == (2, "")
    assert error in ended.err
    assert hint in ended.err


def test_a_line_of_envelopes_is_a_whole_record(kappa: Kappa, project: Path, sent: Sent) -> None:
    (project / "hits.jsonl").write_text(
        '{"key": "k", "value": {"page": "/a"}, "timestamp": 5, "headers": {"trace": "x"}, '
        '"partition": 0}\n{"key": "k", "value": null}\n'
    )

    kappa("produce", "web.hits", "hits.jsonl", "--envelope").has(0)
    assert sent.records == [
        ProducedRecord(b'{"page": "/a"}', b"k", 5, (("trace", b"x"),), 0),
        ProducedRecord(None, b"k"),
    ]


def test_topics_are_listed_whether_they_are_declared_on_the_broker_or_both(
    kappa: Kappa, project: Path, sent: Sent
) -> None:
    (project / "pipelines" / "ads.py").write_text(
        PIPELINE.replace("web.hits", "ads.shown")
        .replace("page_hits", "ads")
        .replace("def web", "def ads"),
        encoding="utf-8",
    )

    listed = kappa("topics", "list", "-o", "json").json()

    assert [tuple(each.values()) for each in listed] == [
        ("ads.shown", "retained", True, False, None, None, None),
        ("web.hits", "retained", True, True, 1, 7, "id of web.hits"),
        ("web.misses", None, False, True, 1, 7, "id of web.misses"),
    ]


@pytest.mark.parametrize(
    ("last", "kind", "says"),
    [
        (
            Verified(1, "failed", HERE, reason="2 of 3 rows do not satisfy: hits > 0"),
            VerificationFailed,
            "hits > 0",
        ),
        (Verified(1, "inconclusive", HERE, reason="not run"), VerificationFailed, "not run"),
        (Failed(1, "the job stopped", "mend it"), KappaError, "the job stopped"),
        (Abandoned(1, "abandoned by hand"), Conflict, "by hand"),
    ],
    ids=["failed", "inconclusive", "stopped", "ended by somebody else"],
)
def test_a_rollout_that_does_not_serve_is_an_error_of_its_kind(
    store: Store, last: Event, kind: type[KappaError], says: str
) -> None:
    append(store, Staged("web", "web-1", "v1", ("new",)), CaughtUp(1, Offsets()), last)
    with pytest.raises(kind, match=says) as told:
        raise_unless_served(state_of(store).rollout(1))
    assert type(told.value) is kind


def test_news_are_told_once(store: Store) -> None:
    steps = []
    for event in (
        Staged("web", "web-1", "v1", ("new",)),
        CaughtUp(1, Offsets()),
        Verified(1, "passed", Offsets(), (CHECK,)),
    ):
        append(store, event)
        steps.append(state_of(store).rollout(1))
    told = [
        line
        for before, after in zip([None, *steps], [*steps, steps[-1]], strict=True)
        for line in rollout_news(before, after)
    ]

    assert told == [
        "rollout 1: build web-1 of pipeline web replays from the beginning",
        "caught up at (nothing)",
        "verified at (nothing): passed",
        "  page_hits: hits > 0: 3 rows pass",
    ]


@pytest.mark.slow
def test_who_stops_reading_hears_no_complaint(project: Path, two_builds: Store) -> None:
    two_builds.put("logs/supervisor.log", b"line\n" * 200_000)
    with typed(project, "logs", "-n", "200000") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"supervisor | line\n"
        process.stdout.close()
        assert (process.wait(30), read(process)) == (0, b"")


@pytest.mark.slow
def test_an_interrupt_is_quiet(project: Path, two_builds: Store) -> None:
    two_builds.put("logs/supervisor.log", b"line\n")
    with typed(project, "logs", "supervisor", "-f") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"line\n"
        process.send_signal(signal.SIGINT)
        assert (process.wait(30), read(process)) == (130, b"interrupted\n")


@pytest.mark.slow
def test_a_stopped_follower_learns_how_to_follow_again_and_the_rollout_continues(
    project: Path, two_builds: Store
) -> None:
    stage(two_builds, "web-3")
    pretend_up(two_builds)
    with typed(project, "wait", "web") as process:
        assert process.stderr is not None
        told = process.stderr.readline().decode()
        assert told == "rollout 3: build web-3 of pipeline web replays from the beginning\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        # A line about the rollout's state may stand before.
        assert read(process).endswith(
            b"rollout 3 goes on; kappa wait 3 follows it, kappa abandon 3 gives it up\n"
            b"interrupted\n"
        )

    assert (state_of(two_builds).rollout(10).active, state_of(two_builds).last) == (True, 10)


@pytest.mark.slow
def test_at_a_terminal_status_is_shown_again_and_again_until_it_is_interrupted(
    project: Path, two_builds: Store
) -> None:
    screen, terminal = pty.openpty()
    command, wide = (
        [sys.executable, str(HOUSE / "cli.py"), "status", "-w"],
        {**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    )
    with subprocess.Popen(
        command, cwd=project, stdout=terminal, stderr=subprocess.PIPE, env=wide
    ) as process:
        os.close(terminal)
        see(screen, b"generation 2")
        append(
            two_builds,
            SwitchAsked("web", "web-1", "undo"),
            Held(10, "web-2", 1),
            served(10, 3, "web-1", "web-2"),
        )
        see(screen, b"generation 3")
        process.send_signal(signal.SIGINT)
        assert (process.wait(30), read(process)) == (130, b"interrupted\n")
    os.close(screen)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
def test_answers_are_utf_8_in_any_language(project: Path, language: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HOUSE / "cli.py"), "query", "select '日本' as x", "-o", "csv"],
        cwd=project,
        capture_output=True,
        check=True,
        env={**os.environ, "LC_ALL": language, "PYTHONUTF8": "0"},
    )
    assert done.stdout.decode() == "x\n日本\n"


def typed(project: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(HOUSE / "cli.py"), *arguments],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def read(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stderr is not None
    return process.stderr.read()


def see(screen: int, text: bytes) -> None:
    """Reads from a terminal until this text is shown."""
    seen = b""
    while text not in seen:
        seen += os.read(screen, 65536)
