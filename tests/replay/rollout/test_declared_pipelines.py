"""Laws of declarations: the queries of one pipeline never delay those of another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kappa.base import fork_call
from kappa.base.errors import UsageError
from kappa.base.settings import load_settings
from kappa.code import project
from kappa.replay.rollout.plan import declared_pipelines
from kappa.replay.rollout.plan.validate import ensure_valid, validate_project, validated_text
from kappa.state.store import open_store

PIPELINE = """
from kappa import Table, Topic, View, pipeline

ORDERS = Topic("orders", kind="retained", event="id string not null, n int", key="id", partitions=1)


@pipeline(
    reads={{"orders": ORDERS}},
    writes=[
        Table("{name}_orders", latest=ORDERS, checks=({check!r},)),
        View("{name}", {sql!r}, keys=("n",)),
    ],
)
def {name}(orders):
    return {{}}
"""
GOOD = "select n, count(*) as c from {name}_orders group by n"
ENDLESS = (
    "select count(*) as n from range(1000000000000)",
    "with recursive t(n) as (select 1 union all select n + 1 from t) select max(n) as n from t",
)


def write(folder: Path, name: str, sql: str, check: str = "n > 0") -> None:
    (folder / "kappa.toml").touch()
    (folder / "pipelines").mkdir(exist_ok=True)
    text = PIPELINE.format(name=name, sql=sql.format(name=name), check=check)
    (folder / "pipelines" / f"{name}.py").write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("sql", ENDLESS)
def test_an_endless_view_is_named_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.setattr(declared_pipelines, "_SQL_SECONDS", 1.0)
    write(tmp_path, "bad", sql)
    write(tmp_path, "good", GOOD)
    settings = load_settings(tmp_path)

    found = validate_project(settings, open_store(settings))

    text = validated_text(found)
    assert re.search("bad: refused: .*bad.py:7.* pipeline bad .* longer than", text), text
    assert "\ngood: valid (version " in text
    with pytest.raises(Exception, match="1 of 2 pipelines refused: bad"):
        ensure_valid(found)


ENDLESS_FILES = {
    "a sleep": ("import time\ntime.sleep(10**9)\n", "longer than"),
    "a loop that no signal interrupts": ("sum(range(10**15))\n", "longer than"),
    "a loop that catches all": (
        "while True:\n    try:\n        1 / 0\n    except BaseException:\n        continue\n",
        "longer than",
    ),
    "memory": ("x = []\nwhile True:\n    x.append(bytearray(1 << 20))\n", "MiB of memory"),
    "an end of the process": ("import os\nos._exit(3)\n", r"\(code 3\)"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "why"), ENDLESS_FILES.values(), ids=ENDLESS_FILES)
def test_a_file_whose_import_does_not_end_is_named_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    # A busy machine may take seconds to hand out the memory, or to give a file its share of a core.
    monkeypatch.setattr(project, "_IMPORT_SECONDS", 60 if "MiB" in why else 0.4)
    monkeypatch.setattr(fork_call, "_TIMES_AS_LONG", 10 if "sleep" in text else 100)
    monkeypatch.setattr(project, "_IMPORT_MEMORY", 128 << 20)
    for name in ("first", "last"):
        write(tmp_path, name, GOOD)
    (tmp_path / "pipelines" / "middle.py").write_text(text)
    # What imports it is refused as well, and names it.
    (tmp_path / "pipelines" / "reader.py").write_text("import pipelines.middle\n")
    (tmp_path / "pipelines" / "wrong.py").write_text("def\n")
    settings = load_settings(tmp_path)

    found = validate_project(settings, open_store(settings))

    text = validated_text(found)
    where = ":" if "code" in why or "MiB" in why else r":\d:"
    assert re.search(f"pipelines/middle.py: refused: .*middle.py{where} .*middle.py .*{why}", text)
    assert "pipelines/reader.py: refused: " in text
    assert "pipelines/wrong.py: refused: " in text
    assert text.startswith("first: valid (version ")
    assert "\nlast: valid (version " in text
    with pytest.raises(UsageError, match="3 of 5 pipelines refused: pipelines/middle.py, "):
        ensure_valid(found)
