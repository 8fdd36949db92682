"""Each listed failpoint is at one place, a test kills at it, and no other name is accepted."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import get_args

import pytest
from house import HOUSE

from kappa.base.errors import UsageError
from kappa.base.failpoint import NAMES, acting, failpoint, parsed
from kappa.state.journal.events import Event

# Each declares in FAILPOINTS at which ones it kills.
KILLING = (
    *("tests/replay/platform/test_crashes.py", "tests/engine/job/test_splits.py"),
    *("tests/replay/platform/test_processes.py", "tests/replay/rollout/test_prove.py"),
    *("tests/serving/outlets/test_sinks.py", "tests/state/test_lock.py"),
    *("tests/state/files/test_claim.py", "tests/engine/job/test_job.py"),
    *("tests/engine/archive/test_archive.py", "tests/engine/write/test_recent.py"),
    *("tests/e2e/test_rollouts.py", "tests/serving/outlets/test_alert_crashes.py"),
    "tests/serving/outlets/test_exports.py",
)
# Each of these kills a process by SIGKILL: a job, what drains beside it, a supervisor, a courier,
# commands, who delivers alerts, claims a root, keeps a proof or takes a lock, and who
# plays supervisor, jobs and commands by hand.
REAL = (
    *("tests/engine/job/test_job.py", "tests/engine/write/test_recent.py"),
    *("tests/replay/platform/test_processes.py", "tests/e2e/test_rollouts.py"),
    *("tests/serving/outlets/test_sinks.py", "tests/commands/test_killed_commands.py"),
    *("tests/serving/outlets/test_alert_crashes.py", "tests/state/files/test_claim.py"),
    *("tests/engine/job/test_splits.py", "tests/state/test_lock.py"),
    *("tests/replay/rollout/test_prove.py", "tests/replay/platform/test_crashes.py"),
    "tests/serving/outlets/test_exports.py",
)
# An archiver is killed for real at one of these; at all of them a test dies by an exception.
IN_ONE_PROCESS = {
    f"archive.{when}_{what}" for when in ("before", "after") for what in ("create", "append")
}
# Journal.append names its failpoints by the kind of the record.
KINDS = [event.__struct_config__.tag for event in get_args(Event)]


def places() -> Iterator[str]:
    """Yields the names in all calls of `failpoint`.

    A name that contains a record's kind stands for all kinds.
    """
    for folder in ("kappa", "replay", "serving", "demo", "pipelines"):
        for path in (HOUSE / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            # Of hundreds of files few have one, and parsing all takes a second.
            for node in ast.walk(ast.parse(text)) if "failpoint" in text else ():
                match node:
                    case ast.Call(ast.Name("failpoint"), [ast.Constant(str(name))]):
                        yield name
                    # The text of a record's kind: f"journal.before_{event.kind}".
                    case ast.Call(
                        ast.Name("failpoint"),
                        [ast.JoinedStr([ast.Constant(str(start)), ast.FormattedValue(kind)])],
                    ) if isinstance(kind, ast.Attribute) and kind.attr == "kind":
                        yield from (start + kind for kind in KINDS)
                    case ast.Call(ast.Name("failpoint")):
                        raise AssertionError(f"{path}:{node.lineno} names none that can be read")


def declared(file: str) -> set[str]:
    """Returns the failpoints of a test file: the strings in FAILPOINTS that its tests use."""
    body = ast.parse((HOUSE / file).read_text(encoding="utf-8")).body
    read = {
        key
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for key in read_in(node)
    }
    for node in body:
        match node:
            case ast.Assign([ast.Name("FAILPOINTS")], ast.Dict(keys, values)):
                return {
                    name
                    for key, value in zip(keys, values, strict=True)
                    if isinstance(key, ast.Constant) and read & {None, key.value}
                    for name in names_in(value)
                }
            case ast.Assign([ast.Name("FAILPOINTS")], value):
                return names_in(value) if read else set()
    raise AssertionError(f"{file} declares no FAILPOINTS")


def read_in(test: ast.FunctionDef) -> Iterator[object]:
    """Yields the keys of FAILPOINTS that a test or its decorators name, or None for all keys."""
    used = sum(isinstance(node, ast.Name) and node.id == "FAILPOINTS" for node in ast.walk(test))
    for node in ast.walk(test):
        match node:
            case ast.Subscript(ast.Name("FAILPOINTS"), key):
                used -= 1
                yield key.value if isinstance(key, ast.Constant) else None
    if used:
        yield None


def names_in(value: ast.AST) -> set[str]:
    return {
        each.value
        for each in ast.walk(value)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and "." in each.value
    }


def test_each_name_stands_at_exactly_one_place_and_each_place_has_a_name() -> None:
    found = Counter(places())

    assert {name for name, count in found.items() if count > 1} == set()
    assert set(found) == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_each_stands_in_a_list_that_a_test_goes_by() -> None:
    found = {file: declared(file) for file in KILLING}

    assert set().union(*found.values()) == set(NAMES)


def test_a_real_process_is_killed_at_each_that_is_not_listed_here() -> None:
    """A new failpoint needs a process that really dies there, or a line here."""
    found = set[str]().union(*(declared(file) for file in REAL))

    assert found.isdisjoint(IN_ONE_PROCESS)
    assert found | IN_ONE_PROCESS == set(NAMES)


def test_who_passes_one_goes_on_unless_something_acts_there() -> None:
    passed: list[str] = []
    failpoint("frontier.before_put")
    with acting(passed.append):
        failpoint("frontier.after_put")
    failpoint("frontier.before_put")

    assert passed == ["frontier.after_put"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("putt:kill", "names the failpoint 'frontier.before_putt', which does not exist"),
        *((text, "which cannot be done") for text in ("put", "put:maim", "put:kill:0")),
        ("put:kill:twice", "which cannot be done"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parsed(f"frontier.before_{text}")


def test_a_typo_ends_the_program_as_it_starts_and_says_what_was_meant() -> None:
    program = "import kappa.state.journal.journal; print('begun')"
    done = _python(program, "frontier.before_putt:kill")

    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean frontier.before_put?" in done.stderr


def test_a_process_is_killed_at_the_passing_that_was_asked_for() -> None:
    done = _python(
        "from kappa.base.failpoint import failpoint\n"
        "for n in range(9): failpoint('frontier.before_put'); print(n, flush=True)",
        "frontier.before_put:kill:3",
    )

    assert (done.returncode, done.stdout.split()) == (-9, ["0", "1"])


def _python(program: str, fail: str) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, "-c", program], {**os.environ, "KAPPA_FAIL": fail}
    how = {"capture_output": True, "text": True}
    return subprocess.run(command, cwd=HOUSE, env=env, check=False, **how)
