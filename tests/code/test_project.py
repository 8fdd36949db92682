"""Laws of loading: a project's files are loaded freshly, and may import each other.

An error in a file is reported as one sentence with the user's line.
"""

from __future__ import annotations

import calendar
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from kappa.base.errors import DeclarationError
from kappa.code.importer import open_sources
from kappa.code.project import load_files, load_pipeline, load_pipelines, load_project
from kappa.code.sources import Sources

ORDERS = """
from kappa import Table, Topic, pipeline
ORDERS = Topic("orders", event="id string")

@pipeline(reads={"orders": ORDERS}, writes=[Table("lines")])
def orders(orders):
    return {"lines": orders}
"""


def write(project: Path, **files: str) -> Path:
    for name, text in files.items():
        path = project / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return project


def refused(project: Path) -> str:
    with pytest.raises(DeclarationError) as error:
        load_pipelines(project)
    assert "\n" not in error.value.message
    return error.value.message


def test_file_without_a_pipeline_is_a_helper(tmp_path: Path) -> None:
    """A file without a pipeline is loaded too, and can be imported by other files."""
    write(tmp_path, pipelines__orders=ORDERS, pipelines__helpers="X = 1")

    project = load_project(tmp_path)

    assert list(project.pipelines) == ["orders"]
    assert project.places["orders"].module == "pipelines.orders"
    assert project.places["orders"].attribute == "orders"


def test_hidden_files_of_editors_are_no_pipelines(tmp_path: Path) -> None:
    """macOS and some editors put a copy next to a file, whose name begins with a dot."""
    write(tmp_path, pipelines__orders=ORDERS)
    (tmp_path / "pipelines" / "._orders.py").write_bytes(b"\0\5\26\7")
    (tmp_path / "pipelines" / ".#orders.py").symlink_to("ann@host.1234")

    assert list(load_project(tmp_path).pipelines) == ["orders"]


def test_a_project_without_pipelines_has_none(tmp_path: Path) -> None:
    assert load_pipelines(tmp_path) == {}


@pytest.mark.parametrize(
    "line",
    [
        *("from pipelines.helpers import NAME", "import helpers; NAME = helpers.NAME"),
        *("from .helpers import NAME", "from beside import NAME", "from shop.names import NAME"),
        "import bare.names as n; NAME = n.NAME",
    ],
)
def test_helpers_are_found_beside_and_inside_the_folder(tmp_path: Path, line: str) -> None:
    files = ("pipelines__helpers", "beside", "shop__names", "bare__names")
    write(tmp_path, shop____init__="", **dict.fromkeys(files, 'NAME = "lines"'))
    write(tmp_path, pipelines__orders=line + ORDERS.replace('"lines"', "NAME"))

    assert [table.name for table in load_pipelines(tmp_path)["orders"].tables] == ["lines"]


def test_each_load_sees_the_files_as_they_are_now(tmp_path: Path) -> None:
    named = "from helpers import NAME\n" + ORDERS.replace('"lines"', "NAME")
    write(tmp_path, pipelines__orders=named, pipelines__helpers='NAME = "lines"')
    load_pipelines(tmp_path)
    write(tmp_path, pipelines__helpers='NAME = "kinds"')

    assert [table.name for table in load_pipelines(tmp_path)["orders"].tables] == ["kinds"]


def test_each_project_has_its_own_modules(tmp_path: Path) -> None:
    one = write(tmp_path / "one", pipelines__orders=ORDERS, pipelines__helpers="")
    two = write(tmp_path / "two", pipelines__orders=ORDERS + "\nimport helpers\n")
    load_pipelines(one)

    assert "there is no module helpers" in refused(two)


def test_a_file_hides_no_library(tmp_path: Path) -> None:
    uses = "import calendar, duckdb\ncalendar.monthrange, duckdb.connect\n"
    hiding = ("pipelines__calendar", "pipelines__duckdb", "calendar")
    write(tmp_path, pipelines__orders=uses + ORDERS, **dict.fromkeys(hiding, "X = 1"))

    load_pipelines(tmp_path)

    assert sys.modules["calendar"] is calendar


def test_loading_leaves_no_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loading writes no files next to the user's, and nothing to stdout."""
    write(tmp_path, pipelines__orders=ORDERS + "\nprint('hello')\n")

    load_pipelines(tmp_path)

    assert [path.name for path in tmp_path.rglob("*")] == ["pipelines", "orders.py"]
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\ny = (", 2, "syntax error: '(' was never closed"),
        ("def f():\nreturn 1", 2, "syntax error: expected an indented block"),
        ("x = 1\nimport nowhere", 2, "there is no module nowhere"),
        ("import nowhere.deep", 1, "there is no module nowhere"),
        ("from kappa import Tabel", 1, "module kappa has no Tabel"),
        ("def f():\n    return 1 / 0\nf()", 2, "ZeroDivisionError: division by zero"),
        ("raise ValueError('one\\ntwo')", 1, "ValueError: one"),
        ("import json\n\njson.loads('x')", 3, "JSONDecodeError"),
        ("import sys\nsys.exit(3)", 2, "ends the process"),
        ("from kappa import Topic\n\nTopic('a', event='x map')", 3, "type map"),
        ("x = '\x00'", None, "null bytes"),
    ],
)
def test_error_of_a_file_has_a_line(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    """The error is one sentence with file and line."""
    write(tmp_path, pipelines__broken=text)

    message = refused(tmp_path)

    place = "" if line is None else f"{line}:"
    assert message.startswith(f"{tmp_path}/pipelines/broken.py:{place}")
    assert said in message


MISUSES = {
    "frequent('visitor', 10)": ("there is no name frequent", "count each value, and keep the"),
    "cuont()": ("there is no name cuont", "did you mean count?"),
    "latest('ms')": ("there is no name latest", "import it: from kappa import latest"),
    "kappa.Tabel('x')": ("module kappa has no Tabel", "did you mean Table?"),
    "kappa.sequence(len)": ("sequence needs emits", "such as sequence(follows(looked, times=3), "),
    "Table('x', keyz=('a',))": ("Table has no option keyz", "did you mean keys?"),
    "kappa.pipeline(len)": (
        "pipeline has an argument too many, or with",
        "such as pipeline(reads={",
    ),
    "kappa.Alert('x')": ("Alert needs of and to", 'such as Alert("busy-page", of="page_visits", '),
}


@pytest.mark.parametrize("call", MISUSES)
def test_a_wrong_call_says_what_to_write(tmp_path: Path, call: str) -> None:
    """The error has the line of the call, and lists the errors of other declarations too."""
    head = "import kappa\nfrom kappa import Table, Topic, count\n\n"
    more = "Topic('a b', event='n int')\nTable('y', keyz=('a',), fold={'n': count()})\n"
    write(tmp_path, pipelines__web=f"{head}x = {call}\ny = [{more.replace(chr(10), ', ')}]\n")

    error = load_files(tmp_path).refused["pipelines/web.py"]

    said, hint = MISUSES[call]
    assert error.message.startswith(f"{tmp_path}/pipelines/web.py:4: {said}")
    assert error.hint.startswith(hint)
    others = [each.message.partition("web.py:5: ")[2] for each in error.others]
    assert others[0].startswith("'a b' is not a valid name")
    assert others[1:] == ["Table has no option keyz"]


def test_text_that_is_no_utf8_is_refused_with_its_file(tmp_path: Path) -> None:
    write(tmp_path, pipelines__broken="")
    (tmp_path / "pipelines" / "broken.py").write_bytes(b"x = '\xff'\n")

    assert "broken.py" in refused(tmp_path)


def test_what_goes_wrong_in_a_helper_is_said_with_the_helpers_line(tmp_path: Path) -> None:
    uses = "from helpers import x\n" + ORDERS
    write(tmp_path, pipelines__orders=uses, pipelines__helpers="\n\nx = 1 / 0")

    assert refused(tmp_path).startswith(f"{tmp_path}/pipelines/helpers.py:3: ZeroDivisionError")


def test_two_pipelines_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, pipelines__a=ORDERS, pipelines__b=ORDERS)

    folder = tmp_path / "pipelines"
    another = f"there is another pipeline orders, at {folder}/a.py:5"
    assert refused(tmp_path) == f"{folder}/b.py:5: {another}"


def test_a_table_is_written_by_one_pipeline(tmp_path: Path) -> None:
    write(tmp_path, pipelines__a=ORDERS, pipelines__b=ORDERS.replace("def orders", "def other"))

    assert "lines is written by pipeline other and by pipeline orders" in refused(tmp_path)


def test_a_topic_is_declared_in_one_way(tmp_path: Path) -> None:
    other = ORDERS.replace("def orders", "def other").replace('"lines"', '"kinds"')
    other = other.replace('"id string"', '"id int"')
    write(tmp_path, pipelines__a=ORDERS, pipelines__b=other)

    folder = tmp_path / "pipelines"
    differs = f"topic orders is declared differently at {folder}/a.py:3"
    assert refused(tmp_path) == f"{folder}/b.py:3: {differs}"


@pytest.mark.parametrize(
    "line", ["from pipelines.orders import orders", "from orders import orders", "import orders"]
)
def test_a_pipeline_that_another_file_imports_is_one_pipeline(tmp_path: Path, line: str) -> None:
    write(tmp_path, pipelines__a=line, pipelines__orders=ORDERS, pipelines__z=line)

    assert load_project(tmp_path).places["orders"].module == "pipelines.orders"


def test_a_file_whose_name_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    write(tmp_path, **{"pipelines__my-orders": ORDERS})

    assert "my-orders is not a valid module name" in refused(tmp_path)


def test_kappas_own_packages_are_not_the_projects(tmp_path: Path) -> None:
    hiding = dict.fromkeys(("kappa____init__", "kappa__errors"), "raise RuntimeError")
    write(tmp_path, pipelines__orders="import kappa.base.errors\n" + ORDERS, **hiding)

    assert list(load_pipelines(tmp_path)) == ["orders"]


@pytest.mark.parametrize("top", ["serving", "replay", "commands", "demo", "cli"])
def test_the_one_name_that_kappa_takes_is_its_own(tmp_path: Path, top: str) -> None:
    """A project may have modules named `serving` or `cli`: Kappa takes only the name `kappa`.

    The process does not have Kappa's checkout in its path, like a user's process.
    """
    write(tmp_path, pipelines__orders=f"from {top}.own import NAME\n" + ORDERS)
    write(tmp_path, **{f"{top}__own": 'NAME = "lines"'})
    load = "import sys; from pathlib import Path; from kappa.code.project import load_pipelines; "
    shown = "print([*load_pipelines(Path(sys.argv[1]))])"
    command = [sys.executable, "-P", "-c", load + shown, str(tmp_path)]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert found.stdout == "['orders']\n"


@pytest.mark.parametrize("line", ["import serving.gone", "import kappa.gone", "import near.gone"])
def test_no_hint_installs_a_name_of_the_project(tmp_path: Path, line: str) -> None:
    own = dict.fromkeys(("serving__own", "pipelines__near__own"), "")
    write(tmp_path, pipelines__orders=line + "\n" + ORDERS, **own)

    with pytest.raises(DeclarationError, match="there is no module") as error:
        load_pipelines(tmp_path)
    assert error.value.hint == "fix the import"


def test_udfs_are_declared_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    udf = "@F.udf('decimal(10,2)')\ndef f(x): return x"
    by_pandas = "@F.pandas_udf('long')\ndef g(x: pd.Series) -> pd.Series: return x"
    imports = "import pandas as pd\nfrom pyspark.sql import functions as F"
    write(tmp_path, pipelines__orders=f"{imports}\n{udf}\n{by_pandas}\n{ORDERS}")

    assert list(load_pipelines(tmp_path)) == ["orders"]


def test_top_level_columns_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names the line."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    late = "from pyspark.sql import functions as F\nLATE = F.col('delay') > 15\n"
    write(tmp_path, pipelines__orders=late + ORDERS)

    why = "this needs a running Spark, and a file is read without one"
    assert refused(tmp_path) == f"{tmp_path}/pipelines/orders.py:2: {why}"


def schema(more: str) -> bytes:
    """Returns the schema of an event with one field that has these further keywords."""
    field = f'{{"type": "string", {more}}}'
    return f'{{"type": "object", "properties": {{"x": {field}}}}}'.encode()


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("schemas/none.json", None, "schemas/none.json cannot be read: No such file"),
        ("/etc/hostname", None, "/etc/hostname is not named from within the project"),
        ("../out.json", b"{}", "../out.json is not named from within the project"),
        ("a.json", b"{", "a.json is not JSON: Expecting property name"),
        ("a.json", b"\xff", "a.json is not JSON: 'utf-8' codec can't decode"),
        ("a.json", b"\xef\xbb\xbf{}", "a.json is not JSON"),
        ("a.json", b"[]", "a.json is not a JSON Schema of an event"),
        ("a.json", b'{"type": 1, "type": 2}', "a.json is not JSON: 'type' is twice in one object"),
        ("a.json", schema('"format": "ipv4"'), "a.json says format at /properties/x, 'ipv4'"),
    ],
)
def test_a_schema_file_that_cannot_be_meant_is_told_with_the_users_line(
    tmp_path: Path, path: str, content: bytes | None, said: str
) -> None:
    project = tmp_path / "project"
    declared = ORDERS.replace('event="id string"', f'event=Path("{path}")')
    write(project, pipelines__orders=f"from pathlib import Path{declared}")
    if content is not None:
        (project / path).write_bytes(content)

    message = refused(project)

    assert message.startswith(f"{project}/pipelines/orders.py:3: topic orders: {said}")


def test_schema_files_are_found_by_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema file is found if a test only imports the file that declares the topic."""
    imports = "from pathlib import Path\nfrom kappa import Topic"
    visits = 'VISITS = Topic("visits", event=Path("schemas/visit.json"))'
    write(tmp_path, declared_by_schema=f"{imports}\n{visits}")
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "visit.json").write_bytes(schema('"title": "A visit"'))
    load_project(write(tmp_path / "other", pipelines__orders=ORDERS))
    monkeypatch.syspath_prepend(str(tmp_path))

    # The test has just written this module.
    from declared_by_schema import VISITS  # type: ignore[import-not-found]

    assert [column.name for column in VISITS.columns] == ["x"]


def test_one_pipeline_of_a_file_that_was_saved_since(tmp_path: Path) -> None:
    """A pipeline that is gone from its saved file is an error that names the pipeline."""
    sources = Sources(write(tmp_path, pipelines__orders=ORDERS))
    open_sources(sources)
    assert load_pipeline("orders", "pipelines.orders", sources).name == "orders"

    write(tmp_path, pipelines__orders="X = 1")
    open_sources(sources)
    with pytest.raises(DeclarationError, match="declares no pipeline orders any more"):
        load_pipeline("orders", "pipelines.orders", sources)
