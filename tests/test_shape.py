"""The shape of the house: imports go one way, each third-party system has one door, pure modules import no door."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parent.parent

# What a room may import beside itself. Each file at the top (cli.py) is a room too.
ROOMS = {
    "kappa": set(),
    "serving": {"kappa"},
    "replay": {"serving", "kappa"},
    "cli": {"replay", "serving", "kappa"},
    "pipelines": {"kappa"},
    # The demo is a user's program: it stands outside, and types commands.
    "demo": {"replay", "serving", "kappa"},
}

# Third-party system -> the files that may import it; a folder means all in it.
DOORS = {
    "obstore": ("kappa/store.py",),
    "pydantic_settings": ("kappa/settings.py",),
    "confluent_kafka": ("kappa/log/client.py", "kappa/log/reader.py", "kappa/log/bulk.py"),
    # Loops over each record of a replay.
    "numba": ("kappa/compiled.py", "kappa/engine/find_values.py", "kappa/log/bulk.py"),
    "llvmlite": ("kappa/compiled.py", "kappa/log/bulk.py"),
    "deltalake": ("kappa/delta.py",),
    "delta": ("kappa/engine/",),
    # User's code is Spark's.
    "pyspark": ("kappa/engine/", "pipelines/"),
    "py4j": ("kappa/engine/",),
    # The demo's oracle is an independent computation: it must not go through our door.
    # serving/sandboxed.py is a process of its own, for one query of a stranger.
    "duckdb": ("serving/query.py", "serving/sandboxed.py", "kappa/engine/plain_events.py", "demo/oracle.py"),
    "pyarrow": ("kappa/arrow.py", "kappa/lengths.py", "kappa/delta.py", "kappa/engine/", "kappa/log/bulk.py", "serving/sandboxed.py", "demo/"),
    "fastapi": ("serving/http.py", "serving/events.py", "serving/page/", "replay/api.py", "replay/page/routes.py"),
    "starlette": ("serving/http.py",),
    "jinja2": ("serving/page/render.py",),
    "markupsafe": ("serving/page/render.py",),
    "anyio": ("serving/http.py", "serving/events.py"),
    "uvicorn": ("replay/serve.py", "serving/patience.py"),
    "h11": ("serving/patience.py",),
    "typer": ("cli.py",),
    "rich": ("cli.py", "serving/render.py", "replay/progress.py", "kappa/log/jars.py", "kappa/setup.py", "demo/"),
    "pandas": ("kappa/engine/ordered.py", "demo/events.py"),
    # Whole columns at a time.
    "numpy": ("kappa/lengths.py", "kappa/engine/", "kappa/log/bulk.py"),
    # Records are read and upgraded by it; it is no system and may be used wherever a record is.
    "pydantic": ("kappa/", "serving/http.py", "replay/api.py"),
}

# What a pure module may not touch: systems that are somewhere else, and our doors to them. Values of a library (Arrow's
# types, pydantic's adapters, widths of characters) reach nowhere.
OUTSIDE = {"obstore", "confluent_kafka", "deltalake", "delta", "pyspark", "py4j", "duckdb", "typer"}
DOOR_MODULES = {"kappa.store", "kappa.log.client", "kappa.delta", "kappa.engine.session", "serving.query"}


def files() -> list[Path]:
    return sorted(path for room in ROOMS for path in [*(HOUSE / room).rglob("*.py"), *HOUSE.glob(f"{room}.py")])


def name_of(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


def imports(path: Path, *, running: bool = False) -> Iterator[str]:
    """The modules that a file imports, wherever it does; `running` leaves out what only types need."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield module
                yield from (f"{module}.{name.name}" for name in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise) if running:
                pending.extend(otherwise)
            case _:
                pending.extend(ast.iter_child_nodes(node))


@pytest.mark.parametrize("path", files(), ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    room = path.relative_to(HOUSE).parts[0].removesuffix(".py")
    foreign = {top for module in imports(path) if (top := module.partition(".")[0]) in ROOMS and top != room}

    assert foreign <= ROOMS[room]


@pytest.mark.parametrize("path", files(), ids=name_of)
def test_each_system_has_one_door(path: Path) -> None:
    name = name_of(path)
    for module in imports(path):
        top = module.partition(".")[0]
        if top in ROOMS or top in sys.stdlib_module_names:
            continue
        assert top in DOORS, f"{top} is not in the table of doors"
        assert any(name == door or (door.endswith("/") and name.startswith(door)) for door in DOORS[top]), f"{name} imports {top} past its door"


def test_what_is_imported_is_required_at_the_version_of_the_lock() -> None:
    required = {_plain(each) for each in tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]}
    locked = {_plain(each) for each in (HOUSE / "requirements.lock").read_text(encoding="utf-8").splitlines() if "==" in each}
    # Spark's own way to its JVM, of the version that it says.
    systems = DOORS.keys() - {"py4j"}
    distributions = packages_distributions()

    assert {_plain(distributions[system][0]) for system in systems} <= {name.partition("==")[0] for name in required}
    assert required <= locked


def _plain(name: str) -> str:
    return name.partition(" ")[0].lower().replace("_", "-")


def test_every_door_is_used() -> None:
    used = {(top, name_of(path)) for path in files() for module in imports(path) if (top := module.partition(".")[0]) in DOORS}
    unused = {
        (system, door)
        for system, doors in DOORS.items()
        if system != "py4j"
        for door in doors
        if not any(top == system and (name == door or name.startswith(door)) for top, name in used)
    }

    assert unused <= {("duckdb", "kappa/engine/decode.py")}


@pytest.mark.parametrize("path", [path for path in files() if "Pure." in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")], ids=name_of)
def test_pure_modules_import_no_door(path: Path) -> None:
    assert {module for module in imports(path, running=True) if module in DOOR_MODULES or module.partition(".")[0] in OUTSIDE} == set()


@pytest.mark.parametrize("path", [path for path in files() if path.name != "__init__.py"], ids=name_of)
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_a_session_is_made_in_one_place() -> None:
    makers = {
        name_of(path)
        for path in files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "builder" and ast.unparse(node.value) == "SparkSession"
    }
    assert makers <= {"kappa/engine/session.py"}


@pytest.mark.parametrize("arguments", [["--help"], ["query", "--help"], ["deploy", "--help"], ["topics", "--help"]])
def test_help_imports_neither_spark_nor_duckdb(arguments: list[str]) -> None:
    code = "import sys, cli; code = cli.run(sys.argv[1:]); print([name for name in ('pyspark', 'duckdb', 'deltalake', 'pyarrow', 'confluent_kafka', 'obstore') if name in sys.modules], code)"
    found = subprocess.run([sys.executable, "-c", code, *arguments], cwd=HOUSE, capture_output=True, text=True, check=True)

    assert found.stdout.splitlines()[-1] == "[] 0"
