"""Laws of snapshots: a build runs from its own files only, whatever happens to the source tree."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from births import make_birth
from msgspec.structs import replace

from kappa.base.errors import Broken
from kappa.code.code_snapshot import ensure_snapshot, hash_files, load_snapshot, snapshot_files
from kappa.code.project import load_project
from kappa.state.build import Birth
from kappa.state.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = """
from kappa import Table, Topic, pipeline
from pipelines.words import loud
import plain, shop.prices

@pipeline(reads={"orders": Topic("orders", event="id string")}, writes=[Table("lines")])
def orders(orders):
    import lazy
    return {"lines": (loud("v1"), plain.NAME, shop.prices.VAT, lazy.NAME)}
"""
FILES = {
    "pipelines/orders.py": ORDERS,
    "pipelines/words.py": "def loud(text):\n    return text.upper()",
    "pipelines/idle.py": "",
    "plain.py": "NAME = 'plain'",
    "lazy.py": "NAME = 'lazy'",
    "shop/__init__.py": "",
    "shop/prices.py": "VAT = 19",
    "shop/idle.py": "",
}
RETURNED = {"lines": ("V1", "plain", 19, "lazy")}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", FILES)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "root")


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def born(store: Store, tree: Path, pipeline: str = "orders") -> Birth:
    project = load_project(tree)
    module = project.places[pipeline].module
    contents = snapshot_files(module, functools.cache(project.sources.find))
    ensure_snapshot(store, f"{pipeline}-1", contents)
    return make_birth(
        f"{pipeline}-1", pipeline=pipeline, sources=hash_files(contents), module=module
    )


def test_a_snapshot_holds_what_importing_the_pipeline_reads(store: Store, tree: Path) -> None:
    assert set(born(store, tree).sources) == FILES.keys() - {"pipelines/idle.py", "shop/idle.py"}


def test_a_build_runs_as_it_was_born_after_the_tree_has_changed(
    any_store: Store, tree: Path
) -> None:
    birth = born(any_store, tree)
    write(tree, dict.fromkeys(FILES, "raise RuntimeError"))

    assert load_snapshot(any_store, birth).function(None) == RETURNED


@pytest.mark.parametrize(
    ("semantics", "parts", "policy"),
    [(2, {}, "stop"), (2, {"on_error": "reject"}, "reject"), (3, {}, "reject")],
)
def test_a_build_does_with_failing_records_as_it_was_born(
    store: Store, tree: Path, semantics: int, parts: dict[str, str], policy: str
) -> None:
    birth = replace(born(store, tree), semantics=semantics, parts=parts)

    assert load_snapshot(store, birth).on_error == policy


def test_changed_local_copy_stops_the_build(any_store: Store, tree: Path) -> None:
    birth = born(any_store, tree)
    load_snapshot(any_store, birth)
    any_store.local.put("builds/orders-1/code/lazy.py", b"NAME = 'changed'")
    # From a bucket it is copied anew; on a disk it is the snapshot itself.
    assert _loads(any_store, birth) == (not any_store.is_on_disk)

    any_store.local.put("builds/orders-1/code/shop/more.py", b"")
    assert not _loads(any_store, birth)


def _loads(store: Store, birth: Birth) -> bool:
    try:
        return load_snapshot(store, birth).function(None) == RETURNED
    except Broken:
        return False


def schema(column: str) -> str:
    return f'{{"type": "object", "properties": {{"{column}": {{"type": "string"}}}}}}'


IMPORTS = "from pathlib import Path\nfrom kappa import Topic\n"
NAMES = ("visit", "click", "other")
SCHEMAS = {
    "pipelines/visits.py": """
from pathlib import Path
from kappa import Table, Topic, pipeline
import topics

NAMES = ["visit", "click"]
ALL = {name: Topic(name, event=Path(f"./schemas/{name}.json")) for name in NAMES}

@pipeline(reads={"visits": ALL["visit"]}, writes=[Table("lines")])
def visits(visits):
    return {"lines": visits}
""",
    "topics.py": f'{IMPORTS}PAGES = Topic("pages", event=Path("pages.json"))',
    "pipelines/others.py": f'{IMPORTS}PAGES = Topic("others", event=Path("schemas/other.json"))',
    **dict.fromkeys((*(f"schemas/{name}.json" for name in NAMES), "pages.json"), schema("id")),
}


def test_schema_files_are_kept_as_read(store: Store, tmp_path: Path) -> None:
    """The snapshot contains the files that the pipeline's import reads."""
    tree = write(tmp_path / "tree", SCHEMAS)

    birth = born(store, tree, "visits")
    write(tree, {"schemas/visit.json": schema("other")})

    assert set(birth.sources) == SCHEMAS.keys() - {"pipelines/others.py", "schemas/other.json"}
    kept, now = load_snapshot(store, birth), load_project(tree).pipelines["visits"]
    assert [column.name for column in kept.topics[0].columns] == ["id"]
    assert [column.name for column in now.topics[0].columns] == ["other"]


def test_a_schema_file_that_is_read_no_more_is_in_no_snapshot(store: Store, tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", SCHEMAS)
    load_project(tree)

    write(tree, {"pipelines/visits.py": SCHEMAS["pipelines/visits.py"].replace(', "click"', "")})

    assert "schemas/click.json" not in born(store, tree, "visits").sources


def test_changed_schema_file_stops_its_build(store: Store, tmp_path: Path) -> None:
    birth = born(store, write(tmp_path / "tree", SCHEMAS), "visits")
    store.put("builds/visits-1/code/schemas/visit.json", schema("no").encode())

    with pytest.raises(Broken, match=r"schemas/visit\.json was changed in the code snapshot"):
        load_snapshot(store, birth)


def test_a_build_runs_without_its_tree(
    store: Store, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    birth = born(store, tree)
    monkeypatch.chdir(tree)
    monkeypatch.syspath_prepend(str(tree))
    for name in FILES:
        (tree / name).unlink()

    assert load_snapshot(store, birth).function(None) == RETURNED


def test_two_builds_of_one_pipeline_each_have_their_own_helpers(store: Store, tree: Path) -> None:
    one = born(store, tree)
    write(tree, {"pipelines/words.py": "def loud(text):\n    return text * 2"})
    project = load_project(tree)
    contents = snapshot_files(one.module, project.sources.find)
    ensure_snapshot(store, "orders-2", contents)
    two = replace(one, build="orders-2", sources=hash_files(contents))

    assert load_snapshot(store, one).function(None)["lines"][0] == "V1"
    assert load_snapshot(store, two).function(None)["lines"][0] == "v1v1"
    assert load_snapshot(store, one).function(None)["lines"][0] == "V1"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("plain.py", b"NAME = 1", "plain.py was changed in"),
        ("plain.py", None, "plain.py is missing from"),
        ("pipelines/more.py", b"", "pipelines/more.py was added to"),
    ],
)
def test_a_snapshot_that_is_not_what_was_born_stops_the_build(
    store: Store, tree: Path, name: str, content: bytes | None, said: str
) -> None:
    birth = born(store, tree)
    path = f"builds/orders-1/code/{name}"
    store.delete(path) if content is None else store.put(path, content)

    with pytest.raises(Broken, match=f"{said} the code snapshot of build orders-1"):
        load_snapshot(store, birth)


def test_code_that_does_not_run_any_more_stops_the_build(store: Store, tree: Path) -> None:
    write(tree, {"plain.py": "import os\nNAME = os.environ['KAPPA_TEST_NAME']"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAPPA_TEST_NAME", "x")
        birth = born(store, tree)

    stopped = r"the code of build orders-1 does not run any more"
    with pytest.raises(Broken, match=rf"{stopped}: .*builds/orders-1/code/plain.py:2: KeyError"):
        load_snapshot(store, birth)


UDFS = {
    "pipelines/web.py": """
from functools import lru_cache
import threading
from pyspark.sql import functions as F
from kappa import Table, Topic, pipeline
from pipelines.words import Word, loud
import prices

LOCK = threading.Lock()

@lru_cache
def kept(text):
    with LOCK:
        return prices.of(text)

@F.udf("string")
def decorated(text):
    return loud(text) + str(prices.VAT)

def plain(text):
    import lazy
    return Word(text).twice() + lazy.NAME + kept(text)

@F.pandas_udf("string")
def by_pandas(texts: "pd.Series") -> "pd.Series":
    return texts.map(loud)

@pipeline(reads={"hits": Topic("hits", event="id string")}, writes=[Table("lines")])
def web(hits):
    return {"lines": hits.select(decorated("id"), F.udf(plain, "string")("id"), by_pandas("id"), \
F.udf(lambda text: loud(text), "string")("id"))}
""".replace('"pd.Series"', "pd.Series").replace(
        "import threading", "import threading\nimport pandas as pd"
    ),
    "pipelines/words.py": """
from dataclasses import dataclass
from pyspark.sql import functions as F

@dataclass(frozen=True)
class Word:
    text: str
    def twice(self):
        return self.text * 2

def loud(text):
    assert isinstance(Word(text), Word)
    return text.upper()

other = F.udf(loud, "string")
""",
    "pipelines/calendar.py": "day_abbr = ['Own']",
    "prices.py": """
VAT = 19
def of(text):
    import calendar
    from pipelines import calendar as own
    return calendar.day_abbr[0] + own.day_abbr[0] + text
""",
    "lazy.py": "NAME = '-lazy-'",
}


def lines(
    spark: SparkSession, store: Store, birth: Birth, frame: DataFrame
) -> list[tuple[str, ...]]:
    from kappa.engine.spark.workers import tell_workers

    pipeline = load_snapshot(store, birth)
    tell_workers(spark)
    return [tuple(row) for row in pipeline.function(frame)["lines"].collect()]


@pytest.mark.jvm
def test_workers_run_all_of_the_snapshot(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """Functions of every module run in Spark workers."""
    tree = write(tmp_path / "tree", UDFS)
    birth = born(store, tree, "web")
    write(tree, dict.fromkeys(UDFS, "raise RuntimeError"))
    frame = spark.createDataFrame([("a",), ("b",)], "id string")

    rows = lines(spark, store, birth, frame)

    assert sorted(rows) == [
        ("A19", "aa-lazy-MonOwna", "A", "A"),
        ("B19", "bb-lazy-MonOwnb", "B", "B"),
    ]


@pytest.mark.jvm
def test_workers_run_the_last_snapshot(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", UDFS)
    birth = born(store, tree, "web")
    other = Store(tmp_path / "other")
    write(tree, {"prices.py": UDFS["prices.py"].replace("19", "7")})
    changed = born(other, tree, "web")
    frame = spark.createDataFrame([("a",)], "id string")

    assert [row[0] for row in lines(spark, store, birth, frame)] == ["A19"]
    assert [row[0] for row in lines(spark, other, changed, frame)] == ["A7"]
