"""The rooms: imports go one way, each system has one door, pure modules import no door."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from modules import read

HOUSE = Path(__file__).resolve().parent.parent

# The floor plan. A room imports rooms of lines above its own, and no others: so there is no circle.
FLOORS = """
kappa/base/section
kappa/base
kappa/values            kappa/java              serving/metrics        kappa/base/compiled
kappa/objects
kappa/folds
kappa/folds/kinds       kappa/declare/parts
kappa/formats
kappa/formats/protobuf     kappa/formats/debezium
kappa/declare/formats
kappa/declare
kappa/records           kappa/state          kappa/code/static    kappa/log/access
kappa/sums              kappa/parsed         kappa/log/replicas    kappa/registry
kappa/code              kappa/journal        kappa/log            kappa/tables
kappa/state/job         kappa/views          kappa/tables/archived    kappa/log/live
kappa/engine/decode/plain    kappa/engine/spark/cluster    kappa/engine/spark/bucket
kappa/tables/mirrored
kappa/engine/decode     kappa/lines          kappa/broker         kappa/log/config
kappa/engine/spark      kappa/engine/read    kappa/engine/legs    serving/pin
kappa/engine/archive    kappa/engine/fold    serving/reader
kappa/engine/function   serving/query
kappa/engine/write      serving/page         serving/rejects      serving/sandbox
kappa/engine/views     serving/changes
kappa/engine/job        replay/rollout       serving/http         serving/alerts
kappa/engine/children   replay/changes       replay/intents       replay/retire
serving/http/streams    replay/boards        serving/courier         serving/collector/events
kappa/engine/spare      serving/collector/pulled
serving/collector
kappa                   replay/preflight     replay/status        replay/verify
replay/topics           replay/root
replay/plan             replay/prove         replay/doctor
replay/stage
replay/look
replay/http             replay/children
replay/page
replay/run
commands/terminal
commands/following      commands/topics
commands
cli
demo/processes           demo/cluster
demo/producer           demo/judgement
demo
"""
FLOOR = {
    room: floor for floor, rooms in enumerate(FLOORS.strip().splitlines()) for room in rooms.split()
}
# What a room leaves alone though it is on a lower floor.
APART = {
    "serving": ("kappa/engine",),
    "kappa": ("serving", "replay"),
    # It types commands, as a user does.
    "demo": ("commands", "cli"),
}
# A user's programs have the public API, and are no rooms.
PROGRAMS = ("pipelines",)

# Third-party system -> the files that may import it; a folder means all in it.
DOORS = {
    "obstore": ("kappa/objects/",),
    "botocore": ("kappa/objects/credentials.py",),
    "confluent_kafka": ("kappa/log/",),
    # Loops over each record of a replay.
    "numba": (
        "kappa/base/compiled/loops.py",
        "kappa/engine/decode/plain/find_loops.py",
        "kappa/formats/avro_loops.py",
        "kappa/formats/protobuf/message_loops.py",
        "kappa/log/message_loops.py",
    ),
    "llvmlite": ("kappa/base/compiled/loops.py", "kappa/log/message_loops.py"),
    "deltalake": (
        "kappa/tables/delta.py",
        "kappa/tables/archived/stored_archive.py",
        "kappa/tables/mirrored/mirrored_table.py",
        "kappa/tables/stored_table.py",
    ),
    "delta": ("kappa/engine/write/spark_commit.py", "kappa/engine/spark/recording.py"),
    # A user's code is Spark's; types of a step's state are written as Spark's DDL.
    "pyspark": (
        "kappa/engine/",
        "kappa/code/ddl.py",
        "kappa/declare/parts/windows.py",
        "pipelines/",
    ),
    "py4j": ("kappa/engine/",),
    # The demo's oracle is an independent computation: it must not go through our door.
    "duckdb": ("kappa/base/duck.py", "demo/judgement/oracle.py"),
    "pyarrow": (
        "kappa/values/arrow.py",
        "kappa/values/lengths.py",
        "kappa/tables/",
        "kappa/engine/",
        "kappa/log/bulk.py",
        "kappa/lines/parquet.py",
        "kappa/lines/parquet_rows.py",
        "serving/sandbox/pieces.py",
        "demo/",
    ),
    "fastapi": ("serving/http/", "replay/http/api.py", "replay/page/"),
    "starlette": ("serving/http/http.py", "serving/http/streams/changes.py"),
    "httptools": ("serving/http/patience.py",),
    "jinja2": ("serving/page/render.py",),
    "markupsafe": ("serving/page/render.py",),
    "anyio": (
        "serving/http/gate.py",
        "serving/http/http.py",
        "serving/http/queries.py",
        "serving/http/stand.py",
        "serving/http/streams/changes.py",
        "serving/http/streams/events.py",
        "serving/http/streams/open_streams.py",
        "serving/http/streams/reading.py",
        "serving/http/waiting.py",
    ),
    "uvicorn": (
        "replay/run/serve.py",
        "serving/collector/collector.py",
        "serving/collector/single.py",
        "serving/http/patience.py",
    ),
    "h11": ("serving/collector/pulled/",),
    "websockets": ("serving/collector/pulled/",),
    "typer": ("commands/",),
    "rich": (
        "commands/",
        "serving/query/render.py",
        "replay/look/progress.py",
        "kappa/java/jars.py",
        "kappa/setup.py",
        "demo/",
    ),
    "setproctitle": ("kappa/base/process.py",),
    "pandas": ("kappa/engine/fold/step_loop.py", "demo/producer/events.py"),
    # Whole columns at a time.
    "numpy": (
        "kappa/formats/avro_loops.py",
        "kappa/formats/protobuf/message_loops.py",
        "kappa/values/lengths.py",
        "kappa/engine/",
        "kappa/log/bulk.py",
        "kappa/log/message_loops.py",
    ),
    "fastavro": ("kappa/formats/",),
    "google": ("kappa/formats/protobuf/",),
    # FastAPI reads bodies by it, and documents them.
    "pydantic": ("serving/http/queries.py", "replay/http/intent.py"),
    "pytest": ("kappa/pytest_plugin.py",),
    # Records are values of it; it is no system and may be used wherever a record is.
    "msgspec": ("kappa/", "serving/", "replay/"),
}

# What a pure module may not touch: outside systems, and our doors to them. Plain values of a
# library (Arrow's types, msgspec's structs, widths of characters) are no door.
OUTSIDE = {
    *("obstore", "botocore", "confluent_kafka", "deltalake", "delta", "pyspark", "py4j", "duckdb"),
    "typer",
}
DOOR_MODULES = {
    "kappa.objects.address",
    "kappa.objects.bucket",
    "kappa.objects.credentials",
    "kappa.objects.on_disk",
    "kappa.state.store",
    "kappa.log.client",
    "kappa.log.cluster",
    "kappa.log.producer",
    "kappa.tables.delta",
    "kappa.tables.archived.stored_archive",
    "kappa.tables.mirrored.mirrored_table",
    "kappa.tables.stored_table",
    "kappa.tables.versions",
    "kappa.engine.spark.session",
    "kappa.base.duck",
}


@cache
def files() -> list[Path]:
    tops = ("kappa", "serving", "replay", "commands", "demo", *PROGRAMS)
    return sorted(
        [*(path for top in tops for path in (HOUSE / top).rglob("*.py")), HOUSE / "cli.py"]
    )


def room_of(path: Path) -> str:
    """`kappa/engine/read`; a file at the top is a room of its own."""
    return path.parent.relative_to(HOUSE).as_posix() if path.parent != HOUSE else path.stem


@cache
def rooms_imported(path: Path) -> set[str]:
    """Returns the rooms a file imports: a module's folder, or the imported package itself."""
    found = set()
    for module in read(path).imports:
        place = HOUSE.joinpath(*module.split("."))
        if place.is_dir():
            found.add(module.replace(".", "/"))
        elif place.with_suffix(".py").is_file():
            found.add(room_of(place.with_suffix(".py")))
    return found & FLOOR.keys()


def name_of(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


def test_every_room_is_on_the_floor_plan() -> None:
    holding = {room_of(path) for path in files() if path.name != "__init__.py"}

    assert {room for room in holding if room not in PROGRAMS} == FLOOR.keys()


@pytest.mark.parametrize("room", FLOOR)
def test_a_room_imports_only_rooms_above_it_on_the_floor_plan(room: str) -> None:
    apart = APART.get(room.partition("/")[0], ())
    for path in files():
        if room_of(path) == room:
            # A module of a package is imported by way of the package, which holds a docstring.
            foreign = rooms_imported(path) - {room, "kappa"}
            assert {other for other in foreign if FLOOR[other] >= FLOOR[room]} == set(), name_of(
                path
            )
            assert (
                {other for other in foreign if other.startswith(apart)} == set() if apart else True
            ), name_of(path)


def test_no_room_imports_a_program_that_stands_beside_the_rooms() -> None:
    beside = {"kappa.pytest_plugin", "kappa.setup", "kappa.testing"}

    assert beside == {f"kappa.{path.stem}" for path in HOUSE.glob("kappa/[!_]*.py")}
    assert {name_of(path) for path in files() if beside & {*read(path).imports}} == set()


@pytest.mark.parametrize("room", FLOOR)
def test_no_file_imports_itself_by_way_of_others(room: str) -> None:
    beside = {path.stem: path for path in files() if room_of(path) == room}
    package = room.replace("/", ".")
    uses = {
        name: {
            module.rpartition(".")[2]
            for module in read(path).running
            if module.rpartition(".")[0] == package
        }
        & beside.keys() - {name}
        for name, path in beside.items()
    }
    while leaves := {name for name, used in uses.items() if not used & uses.keys()}:
        uses = {name: used for name, used in uses.items() if name not in leaves}

    assert uses == {}


def test_each_system_has_one_door() -> None:
    assert [
        f"{name_of(path)} imports {module} past its door"
        for path in files()
        for module in read(path).imports
        if not is_ours(top := module.partition(".")[0])
        and not any(
            name_of(path) == door or (door.endswith("/") and name_of(path).startswith(door))
            for door in DOORS.get(top, ())
        )
    ] == []


@cache
def is_ours(top: str) -> bool:
    """Returns True for the project's own modules and the standard library."""
    return (
        (HOUSE / top).is_dir() or (HOUSE / f"{top}.py").is_file() or top in sys.stdlib_module_names
    )


def test_each_door_opens_a_package_that_the_project_requires() -> None:
    """At which version, and that it is locked, is held by tests/test_locks.py."""
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {_plain(each).partition("==")[0] for each in project["dependencies"]}
    # Spark's own way to its JVM, of the version that it says; and a user's own pytest.
    systems = DOORS.keys() - {"py4j", "pytest"}
    distributions = packages_distributions()

    assert [
        system
        for system in systems
        if not {_plain(each) for each in distributions[system]} & required
    ] == []


def _plain(name: str) -> str:
    return name.partition(" ")[0].lower().replace("_", "-")


def test_every_door_is_used() -> None:
    used = {
        (top, name_of(path))
        for path in files()
        for module in read(path).imports
        if (top := module.partition(".")[0]) in DOORS
    }
    unused = {
        (system, door)
        for system, doors in DOORS.items()
        if system != "py4j"
        for door in doors
        if not any(top == system and (name == door or name.startswith(door)) for top, name in used)
    }

    assert unused == set()


def test_pure_modules_import_no_door() -> None:
    assert [
        f"{name_of(path)} imports {module}"
        for path in files()
        if "Pure." in read(path).docstring
        for module in read(path).running
        if module in DOOR_MODULES or module.partition(".")[0] in OUTSIDE
    ] == []


def test_every_file_says_what_it_is() -> None:
    assert [
        name_of(path) for path in files() if path.name != "__init__.py" and not read(path).docstring
    ] == []


def test_who_reads_files_of_tables_by_duckdb_reads_them_in_a_bucket_too() -> None:
    """All others open one without files: over text, types or rows of their own."""
    openers = {name_of(path) for path in files() if "open_connection(" in path.read_text("utf-8")}

    assert openers == {
        "kappa/base/duck.py",
        "kappa/engine/decode/plain/typed_texts.py",
        "kappa/objects/in_duckdb.py",
        "kappa/parsed/exact_rows.py",
        "kappa/parsed/trees.py",
        # A checkpoint of a bucket is fetched before.
        "kappa/tables/file_list.py",
        "kappa/views/births.py",
        "kappa/views/ways.py",
        # Asyncio's.
        "serving/collector/pulled/http_get.py",
        # Its files are on this host (serving/sandbox/fetched.py).
        "serving/sandbox/sandboxed.py",
    }


def test_a_session_is_made_in_one_place() -> None:
    makers = {
        name_of(path)
        for path in files()
        # Few files hold the word, and only their expressions are looked at.
        if "builder" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr == "builder"
        and ast.unparse(node.value) == "SparkSession"
    }
    assert makers <= {"kappa/engine/spark/session.py"}


def test_help_imports_neither_spark_nor_duckdb() -> None:
    code = (
        "import sys, cli; print([cli.run_command(line.split()) for line in sys.argv[1:]], "
        "[name for name in ('pyspark', 'duckdb', 'deltalake', 'pyarrow', 'confluent_kafka', "
        "'obstore') if name in sys.modules])"
    )
    typed = ["--help", "query --help", "deploy --help", "topics --help"]
    found = subprocess.run(
        [sys.executable, "-c", code, *typed], cwd=HOUSE, capture_output=True, text=True, check=True
    )

    assert found.stdout.splitlines()[-1] == "[0, 0, 0, 0] []"


def housed() -> list[Path]:
    return [path for path in files() if path.relative_to(HOUSE).parts[0] not in PROGRAMS]


def test_a_class_name_has_one_meaning() -> None:
    # The demo is no part of the product, and has words of its own: its watch, its findings.
    product = [path for path in housed() if path.relative_to(HOUSE).parts[0] != "demo"]
    named = Counter(name for path in product for name in read(path).classes)

    assert [name for name, times in named.items() if times > 1] == []


def test_no_two_files_of_tests_have_one_name() -> None:
    # What they share is imported by its bare name: one of two would hide the other.
    names = Counter(path.name for path in (HOUSE / "tests").rglob("*.py"))

    assert {name for name, times in names.items() if times > 1} == {"conftest.py"}
