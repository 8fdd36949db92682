"""The lock of the jars is read, and only its jars are accepted. No network and no JVM is needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from kappa.base.errors import Damaged, KappaError, Unreachable
from kappa.base.java import jars as jars_module
from kappa.base.java.jars import Jars, ensure_jars, ivy_module, ivy_settings, parse_lock
from kappa.base.java.java import Java, find_java, parse_properties

LOCK = resources.files("kappa.base.java").joinpath("jars.lock").read_text(encoding="utf-8")


def a_line(use="spark", size="7", sha256="a" * 64, coordinates="org.example:thing:1.0"):
    return f"{use} {size} {sha256} {coordinates}\n"


@pytest.fixture
def small_lock(monkeypatch):
    """Returns a lock of two jars whose bytes these tests can make."""
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("one", "two")}
    uses = zip(("broker", "spark"), digests.items(), strict=True)
    lines = [a_line(use, "3", digest, f"org.example:{name}:1") for use, (name, digest) in uses]
    locked = parse_lock("".join(lines))
    monkeypatch.setattr(jars_module, "parse_lock", lambda _text: locked)
    return locked


def a_java(folder: Path, *, gives: dict[str, str], fails: bool = False) -> Java:
    """Makes a `java` that replaces Ivy, and puts these files into Ivy's folders."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    puts = "".join(
        f'mkdir -p "$cache/org.example/{name}/jars"\n'
        f'printf %s "{content}" > "$cache/org.example/{name}/jars/{name}-1.jar"\n'
        for name, content in gives.items()
    )
    failure = "echo java.net.UnknownHostException: nowhere; exit 1" if fails else ""
    program.write_text(
        f'#!/bin/sh\nwhile [ "$1" != -cache ]; do shift; done; cache=$2\n{puts}{failure}\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Java(home=folder, version=17, build="none")


def fetched(folder: Path, *, fails: bool = False, **gives: str) -> Jars:
    """Returns the jars in the folder's cache; missing ones are fetched by the replaced Ivy."""
    java = a_java(folder / f"java {len([*folder.iterdir()])}", gives=gives, fails=fails)
    return ensure_jars(java, cache=folder / "cache")


def test_the_lock_names_91_jars_with_a_hash_each():
    locked = parse_lock(LOCK)

    assert Counter(jar.use for jar in locked) == {"broker": 46, "spark": 9, "bucket": 36}
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in locked)


@pytest.mark.parametrize(
    "line",
    [
        a_line(use="flink"),
        a_line(size="many"),
        a_line(sha256="abc"),
        a_line(coordinates="org.example:thing"),
        "prose\n",
    ],
)
def test_a_line_that_is_no_jar_is_refused_with_its_number(line):
    with pytest.raises(Damaged, match="line 2"):
        parse_lock("# prose\n" + line)


def test_two_jars_of_one_file_name_are_refused():
    with pytest.raises(Damaged, match=r"thing-1\.0\.jar"):
        parse_lock(a_line() + a_line(coordinates="org.other:thing:1.0"))


def test_ivy_is_asked_for_each_jar_exactly_and_for_nothing_behind_it():
    asked = list(ET.fromstring(ivy_module(parse_lock(LOCK))).iter("dependency"))

    assert len(asked) == 91
    assert {each.get("transitive") for each in asked} == {"false"}


def test_another_repository_is_the_only_one_and_may_hold_any_letter():
    settings = ET.fromstring(ivy_settings('https://repository.example/a&b"c/'))

    (root,) = (each.get("root") for each in settings.iter("ibiblio"))
    assert root == 'https://repository.example/a&b"c/'


def test_jars_are_fetched_once_and_then_found(small_lock, tmp_path):
    found = fetched(tmp_path, one="one", two="two")

    assert [path.name for path in (*found.broker, *found.spark)] == ["one-1.jar", "two-1.jar"]
    assert fetched(tmp_path) == found


def test_jars_for_a_bucket_are_fetched_where_a_root_is_in_one(monkeypatch, tmp_path):
    digest = hashlib.sha256(b"one").hexdigest()
    locked = parse_lock(a_line("bucket", "3", digest, "org.example:one:1"))
    monkeypatch.setattr(jars_module, "parse_lock", lambda _text: locked)
    java = a_java(tmp_path / "java", gives={"one": "one"})

    assert ensure_jars(java, cache=tmp_path / "cache").bucket == ()
    assert not [*tmp_path.glob("cache/*.jar")]

    found = ensure_jars(java, cache=tmp_path / "cache", for_bucket=True)
    assert [path.read_text() for path in found.bucket] == ["one"]


def test_other_bytes_than_the_locks_are_refused_and_not_kept(small_lock, tmp_path):
    with pytest.raises(Damaged, match=r"two-1\.jar"):
        fetched(tmp_path, one="one", two="TWO")

    assert sorted(path.name for path in (tmp_path / "cache").rglob("*.jar")) == ["one-1.jar"]


@pytest.mark.parametrize("damage", ["two, and more", "twO"], ids=["another size", "the same size"])
def test_a_jar_that_was_damaged_in_the_cache_is_fetched_again(small_lock, tmp_path, damage):
    found = fetched(tmp_path, one="one", two="two")
    found.spark[0].write_text(damage)

    fetched(tmp_path, two="two")

    assert found.spark[0].read_text() == "two"


def test_a_jar_that_was_only_touched_is_read_again_and_kept(small_lock, tmp_path):
    found = fetched(tmp_path, one="one", two="two")
    os.utime(found.spark[0])

    assert fetched(tmp_path) == found


def test_repository_out_of_reach_is_told(small_lock, tmp_path):
    with pytest.raises(Unreachable, match="1 of 2 jars.*UnknownHostException: nowhere"):
        fetched(tmp_path, fails=True, one="one")

    assert (tmp_path / "cache" / "one-1.jar").exists()


def test_no_java_is_one_line_that_says_what_to_install():
    with pytest.raises(KappaError, match="no Java on this machine.*install"):
        find_java({"PATH": "/nonexistent"})


_APT = "apt-get install openjdk-17-jre-headless"
_DNF = "dnf install java-17-openjdk-headless"
_BREW = "brew install openjdk@17"


@pytest.mark.parametrize(
    ("installer", "hint"),
    [
        ("apt-get", _APT),
        ("dnf", _DNF),
        ("brew", _BREW),
        ("emerge", f"{_APT} (Debian, Ubuntu), {_DNF} (Fedora), {_BREW} (macOS)"),
    ],
)
def test_without_java_the_hint_names_the_package(installer, hint, monkeypatch):
    def which(program, path=None):
        return program if program == installer else None

    monkeypatch.setattr(shutil, "which", which)
    with pytest.raises(KappaError) as found:
        find_java({"PATH": "/nonexistent"})

    assert found.value.hint == f"install it: {hint}"


def test_a_java_home_without_java_is_named():
    with pytest.raises(KappaError, match="JAVA_HOME is /nonexistent"):
        find_java({"JAVA_HOME": "/nonexistent", "PATH": os.environ["PATH"]})


@pytest.mark.parametrize(("printed", "version"), [("1.8", 8), ("11", 11), ("17", 17), ("25", 25)])
def test_the_version_is_read_from_properties_whatever_else_is_printed(printed, version):
    others = "Picked up JAVA_TOOL_OPTIONS: -Dx=y\n    java.home = /opt/a b\n"
    said = f"    java.specification.version = {printed}\nopenjdk version nonsense\n"

    found = parse_properties(others + said, "java")
    assert found == Java(home=Path("/opt/a b"), version=version, build=printed)


def test_an_old_java_is_refused_by_its_number(tmp_path):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    said = r"    java.home = /opt/old\n    java.specification.version = 11\n"
    program.write_text(f"#!/bin/sh\nprintf '{said}' >&2\n")
    program.chmod(0o755)
    assert subprocess.run([program], capture_output=True, check=True).stderr

    with pytest.raises(KappaError, match="is Java 11"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
