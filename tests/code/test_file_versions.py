"""The content of a table's file is part of the version, and a build has its own copy."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from births import make_birth

from kappa.base.errors import Broken
from kappa.code.code_snapshot import ensure_snapshot, hash_files, load_snapshot, snapshot_files
from kappa.code.fingerprint import (
    Fingerprint,
    compute_fingerprint,
    declaration_lines,
    declared_rows_version,
    version_differences,
)
from kappa.code.project import load_project
from kappa.state.store import Store

WEB = """
from kappa import Table, Topic, pipeline

VISITS = Topic("visits", event="id string")
RATES = Table("rates", file="rates.csv")

@pipeline(reads={"visits": VISITS}, writes=[Table("lines"), RATES])
def web(visits):
    return {"lines": visits}
"""


def write(folder: Path, text: str = WEB, **contents: str) -> Path:
    files = {"pipelines/web.py": text, "pipelines/rates.csv": "a\n1\n"}
    for name, content in {**files, **contents}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def version(folder: Path) -> tuple[Fingerprint, str]:
    project = load_project(folder)
    made, place = project.pipelines["web"], project.places["web"]
    found = compute_fingerprint(
        made, place.module, place.attribute, functools.cache(project.sources.find)
    )
    return found, declared_rows_version(made, found.parts)


def test_the_same_content_elsewhere_is_the_same_version(tmp_path: Path) -> None:
    here = version(write(tmp_path))
    write(tmp_path, WEB.replace("rates.csv", "../data/other.csv"), **{"data/other.csv": "a\n1\n"})

    assert version(tmp_path) == here


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (WEB, "a\n2\n"),
        (WEB, "a\n1"),
        (WEB.replace('file="rates.csv"', 'file="rates.csv", columns="a int"'), "a\n1\n"),
        (WEB.replace('file="rates.csv"', 'file="rates.csv", keys=("a",)'), "a\n1\n"),
    ],
)
def test_other_content_or_reading_is_another(tmp_path: Path, text: str, content: str) -> None:
    (before, rows_before) = version(write(tmp_path))
    (after, rows_after) = version(write(tmp_path, text, **{"pipelines/rates.csv": content}))

    assert version_differences(before.parts, after.parts) == ("table rates changed",)
    assert rows_before != rows_after


def test_what_changed_is_told_by_the_digest(tmp_path: Path) -> None:
    lines = declaration_lines(load_project(write(tmp_path)).pipelines["web"])["table rates"]

    assert lines == (
        "rows of a file with SHA-256 "
        "309b0e45a73d3fc5325e2b6ed0a01ef8b9cde6b05a5633c1f893f970d52bfddc"
    )


def test_a_build_reads_the_file_of_its_snapshot(tmp_path: Path) -> None:
    tree, store = write(tmp_path / "tree"), Store(tmp_path / "root")
    project = load_project(tree)
    module = project.places["web"].module
    contents = snapshot_files(module, functools.cache(project.sources.find))
    ensure_snapshot(store, "web-1", contents)
    birth = make_birth("web-1", pipeline="web", sources=hash_files(contents), module=module)
    (tree / "pipelines" / "rates.csv").unlink()

    found = load_snapshot(store, birth).tables[1].file

    assert found.content == b"a\n1\n"
    store.put("builds/web-1/code/pipelines/rates.csv", b"a\n2\n")
    with pytest.raises(Broken, match=r"pipelines/rates\.csv was changed in the code snapshot"):
        load_snapshot(store, birth)
