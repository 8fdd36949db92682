"""The packages: imports have one direction, and each system is imported only in its door.

Pure modules import no door.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from modules import read
from programs import run_python

HOUSE = Path(__file__).resolve().parent.parent

# A package imports packages of lines above its own, and no others: so there is no circle.
ORDER = """
kappa/base
kappa/declare
kappa/state
kappa/code           kappa/tables         kappa/kafka          serving/access
kappa/records
kappa/engine         serving/query
serving/outlets
serving/http         replay/rollout
serving/collect      serving/postgres   replay/status      kappa/develop
replay/page
kappa/project
kappa/agents
replay/platform
kappa/commands
cli
demo
"""
PLACE = {
    package: place
    for place, packages in enumerate(ORDER.strip().splitlines())
    for package in packages.split()
}
# Packages that a package leaves alone though the order would let it import them.
APART = {
    # It types commands, as a user does.
    "demo": ("kappa/commands", "cli"),
}
# A user's programs have the public API, and are no packages.
PROGRAMS = ("pipelines",)

# Third-party system -> the packages that may import it.
DOORS = {
    "obstore": ("kappa/state/",),
    "botocore": ("kappa/state/",),
    "confluent_kafka": ("kappa/kafka/",),
    # Loops over each record of a replay.
    "numba": ("kappa/base/", "kappa/kafka/", "kappa/records/"),
    "llvmlite": ("kappa/base/", "kappa/kafka/"),
    "deltalake": ("kappa/tables/",),
    "pyiceberg": ("kappa/tables/",),
    "delta": ("kappa/engine/",),
    # A user's code is Spark's; types of a step's state are written as Spark's DDL.
    "pyspark": ("kappa/engine/", "kappa/records/", "kappa/code/", "kappa/declare/", "pipelines/"),
    "py4j": ("kappa/engine/",),
    # The demo's oracle is an independent computation: it must not go through our door.
    "duckdb": ("kappa/base/", "demo/"),
    "pyarrow": (
        "kappa/declare/",
        "kappa/tables/",
        "kappa/engine/",
        "kappa/kafka/",
        "kappa/records/",
        "kappa/project/",
        "serving/query/",
        "demo/",
    ),
    "fastapi": ("serving/http/", "replay/page/"),
    "starlette": ("serving/http/",),
    "httptools": ("serving/http/",),
    "jinja2": ("serving/http/",),
    "markupsafe": ("serving/http/",),
    "anyio": ("serving/http/",),
    "uvicorn": ("replay/platform/", "serving/collect/", "serving/http/"),
    "h11": ("serving/collect/",),
    "joserfc": ("serving/access/",),
    "websockets": ("serving/collect/",),
    "mqtt5": ("serving/collect/",),
    "typer": ("kappa/commands/",),
    "prompt_toolkit": ("kappa/commands/",),
    "rich": (
        "kappa/commands/",
        "kappa/project/",
        "serving/query/",
        "replay/status/",
        "kappa/base/",
        "kappa/setup.py",
        "demo/",
    ),
    "setproctitle": ("kappa/base/",),
    "pandas": ("kappa/engine/", "demo/"),
    # Whole columns at a time.
    "numpy": ("kappa/declare/", "kappa/engine/", "kappa/kafka/", "kappa/records/"),
    "fastavro": ("kappa/declare/",),
    "google": ("kappa/declare/",),
    # FastAPI reads bodies by it, and documents them.
    "pydantic": ("serving/http/", "replay/page/", "kappa/agents/"),
    # Extras, which are imported only where they are used.
    "mcp": ("kappa/agents/",),
    "mcp_types": ("kappa/agents/",),
    "httpx2": ("kappa/project/",),
    "pytest": ("kappa/pytest_plugin.py", "kappa/develop/"),
    "watchfiles": ("kappa/develop/",),
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
    "kappa.state.files.address",
    "kappa.state.files.bucket",
    "kappa.state.files.credentials",
    "kappa.state.files.disk",
    "kappa.state.store",
    "kappa.kafka.client",
    "kappa.kafka.producer",
    "kappa.tables.delta",
    "kappa.tables.stored_archive",
    "kappa.tables.mirrored_table",
    "kappa.tables.stored_table",
    "kappa.tables.versions",
    "kappa.engine.spark.session",
    "kappa.base.duck",
}


@cache
def files() -> list[Path]:
    # `kappa/serving` and `kappa/replay` are links to the folders at the top: rglob follows none.
    tops = ("kappa", "serving", "replay", "demo", *PROGRAMS)
    found = [path for top in tops for path in (HOUSE / top).rglob("*.py")]
    # Templates are users' projects: they have the public API, and are no packages.
    return sorted(
        path
        for path in (*found, HOUSE / "cli.py")
        if not path.is_relative_to(HOUSE / "kappa" / "templates")
    )


def name_of(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


def package_of(name: str) -> str | None:
    """Returns the package of a file or folder: `kappa/engine` for `kappa/engine/spark/jvm.py`."""
    return next((each for each in PLACE if f"{name}/".startswith((f"{each}/", f"{each}.py"))), None)


def path_of(module: str) -> str:
    """Returns the path of a module without its ending: `serving/query` for `kappa.serving.query`.

    The only name in site-packages is `kappa`; its links `serving` and `replay` lead to the top.
    """
    name = module.replace(".", "/")
    return re.sub("^kappa/(?=(serving|replay)(/|$))", "", name)


@cache
def modules_imported(path: Path) -> set[str]:
    """Returns the names of files and folders in this tree that a file imports."""
    return {
        name
        for module in read(path).imports
        if (HOUSE / (name := path_of(module))).is_dir() or (HOUSE / f"{name}.py").is_file()
    }


def test_every_file_is_in_a_package_of_the_order() -> None:
    beside = {"kappa/__init__.py", "serving/__init__.py", "replay/__init__.py"}
    programs = {f"kappa/{name}.py" for name in ("pytest_plugin", "setup", "testing")}

    assert {
        name
        for path in files()
        if package_of(name := name_of(path)) is None and not name.startswith(PROGRAMS)
    } == beside | programs


@pytest.mark.parametrize("package", PLACE)
def test_a_package_imports_packages_above_it(package: str) -> None:
    apart = APART.get(package, ())
    for path in files():
        if package_of(name_of(path)) == package:
            others = {*map(package_of, modules_imported(path))} - {package, None}
            assert {each for each in others if PLACE[each] >= PLACE[package]} == set(), name_of(
                path
            )
            assert others.isdisjoint(apart), name_of(path)


def test_a_package_is_imported_through_its_face() -> None:
    """`__all__` of a folder names the modules that other packages import, and no other module."""
    used: dict[str, set[str]] = {}
    for path in files():
        mine = package_of(name_of(path))
        for name in modules_imported(path):
            folder, _, module = name.rpartition("/")
            if (HOUSE / f"{name}.py").is_file() and package_of(name) not in {mine, None, "cli"}:
                used.setdefault(folder, set()).add(module)
    faces = {
        name_of(path.parent): face
        for path in files()
        if path.name == "__init__.py" and package_of(name_of(path)) and (face := _face(path))
    }

    assert faces == used


def _face(init: Path) -> set[str]:
    """Returns the names in `__all__` of a package's `__init__.py`."""
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return {*ast.literal_eval(value)}
    return set()


def test_no_package_imports_a_program_that_stands_beside_it() -> None:
    beside = {"kappa.pytest_plugin", "kappa.setup", "kappa.testing"}

    assert beside == {f"kappa.{path.stem}" for path in HOUSE.glob("kappa/[!_]*.py")}
    assert {name_of(path) for path in files() if beside & {*read(path).imports}} == set()


def test_no_file_imports_itself_by_way_of_others() -> None:
    names = {name_of(path).removesuffix(".py"): path for path in files()}
    uses = {
        name: {path_of(module) for module in read(path).running} & names.keys() - {name}
        for name, path in names.items()
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
    """Returns True for the project's own modules and for the standard library."""
    return (
        (HOUSE / top).is_dir() or (HOUSE / f"{top}.py").is_file() or top in sys.stdlib_module_names
    )


def test_each_door_opens_a_package_that_the_project_requires() -> None:
    """Versions and locks of these packages are tested in tests/test_locks.py."""
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    required = {
        _plain(each).partition("==")[0]
        for each in (
            *project["dependencies"],
            *extras["client"],
            *extras["mcp"],
            *extras["iceberg"],
            *extras["mqtt"],
        )
    }
    # Spark's own way to its JVM, of the version that it says; and a user's own pytest.
    # The SDK's types are a package of their own.
    systems = DOORS.keys() - {"py4j", "pytest", "mcp_types"}
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


def test_a_program_begins_below_all_that_it_calls() -> None:
    """A main block before a later definition would fail with a NameError, which no check finds."""
    early = []
    for path in files():
        statements = ast.parse(path.read_text(encoding="utf-8")).body
        early += [
            f"{name_of(path)}:{each.lineno}"
            for each in statements[:-1]
            if isinstance(each, ast.If) and ast.unparse(each.test) == "__name__ == '__main__'"
        ]

    assert early == []


def test_every_file_says_what_it_is() -> None:
    assert [
        name_of(path) for path in files() if path.name != "__init__.py" and not read(path).docstring
    ] == []


def test_who_reads_files_of_tables_by_duckdb_reads_them_in_a_bucket_too() -> None:
    """Only these modules open DuckDB connections; those that read tables can read a bucket too.

    All others open connections without files: for text, types or their own rows.
    """
    openers = {name_of(path) for path in files() if "open_connection(" in path.read_text("utf-8")}

    assert openers == {
        "kappa/base/duck.py",
        "kappa/records/decode/plain_events.py",
        "kappa/state/files/duckdb_access.py",
        "kappa/tables/views/exact_rows.py",
        "kappa/tables/views/syntax_tree.py",
        # A checkpoint of a bucket is fetched before.
        "kappa/tables/file_list.py",
        "kappa/tables/views/view_tables.py",
        "kappa/tables/views/ways.py",
        # Asyncio's.
        "serving/collect/pulled/kinds.py",
        "serving/collect/pulled/mqtt.py",
        # Its files are on this host (serving/query/sandbox/file_cache.py).
        "serving/query/sandbox/query_program.py",
    }


def test_only_rows_know_where_the_rows_are() -> None:
    """The steps of a slice call methods of the rows, and never ask for their class."""
    rows = {"SliceHere", "SliceAtSpark", "ArrowRows", "FrameRows", "QueryRows"}
    rows |= {"Table", "DataFrame"}
    asked = {
        name_of(path)
        for path in files()
        if name_of(path).startswith("kappa/engine/")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if rows & set(re.findall(r"\w+", _class_asked_for(node)))
    }

    # What a user's function or step has returned is looked at.
    assert asked == {
        "kappa/engine/children/describe.py",
        "kappa/engine/fold/column_loop.py",
        "kappa/engine/fold/step_loop.py",
        "kappa/engine/function/contribution.py",
    }


def _class_asked_for(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
            return ast.unparse(kinds)
        case ast.MatchClass(cls=kind):
            return ast.unparse(kind)
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[kind]):
            return ast.unparse(kind)
    return ""


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
        "import sys; from kappa.commands.app import run_command; "
        "print([run_command(line.split()) for line in sys.argv[1:]], "
        "[name for name in ('pyspark', 'duckdb', 'deltalake', 'pyarrow', 'confluent_kafka', "
        "'obstore') if name in sys.modules])"
    )
    typed = ["--help", "query --help", "deploy --help", "topics --help"]
    found = run_python("-c", code, *typed, folder=HOUSE, check=True)

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
    names = Counter(path.name for top in ("bench", "tests") for path in (HOUSE / top).rglob("*.py"))

    assert {name for name, times in names.items() if times > 1} == {"conftest.py"}
