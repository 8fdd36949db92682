"""Programs of child processes: their options, and errors as text and exit code."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

import pytest

from kappa.base.errors import Conflict, ExitCode, KappaError
from kappa.base.log_lines import error_in, named_level
from kappa.base.program import run_program

PROJECT = ["--project", "shop", "--root", "shop/.kappa"]


def test_a_program_gets_its_options_with_their_types() -> None:
    given: list[Namespace] = []

    def work(options: Namespace) -> ExitCode:
        given.append(options)
        return ExitCode.INTERRUPTED

    code = run_program("shop", work, [*PROJECT, "--rollout", "7"], rollout=int)

    assert code == ExitCode.INTERRUPTED
    assert given == [Namespace(project=Path("shop"), root="shop/.kappa", rollout=7)]


def test_an_error_in_a_log_has_time_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    """The hint belongs to the error, and a supervisor finds the sentence."""

    def work(_options: Namespace) -> ExitCode:
        raise Conflict("build a is taken", hint="wait")

    assert run_program("shop", work, PROJECT) == ExitCode.CONFLICT
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"2\d{3}-\d\d-\d\dT[\d:.]+Z ERROR kappa: build a is taken", first)
    assert (second, error_in(first), named_level(first)) == ("  wait", "build a is taken", "error")


@pytest.mark.parametrize(
    ("error", "written"),
    [
        (Conflict("build a is taken", hint="wait"), "error: build a is taken\nhint: wait\n"),
        (KappaError("the disk is full", hint=""), "error: the disk is full\n"),
    ],
)
def test_an_error_ends_a_program_with_its_code_and_is_written_to_stderr(
    error: KappaError, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(_options: Namespace) -> ExitCode:
        raise error

    assert run_program("shop", work, PROJECT, has_log=False) == error.exit_code
    assert capsys.readouterr() == ("", written)


def test_missing_or_mistyped_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for options, named in (([], "--rollout"), (["--rollout", "x"], "invalid int value: 'x'")):
        with pytest.raises(SystemExit):
            run_program("shop", lambda _: ExitCode.OK, [*PROJECT, *options], rollout=int)

        assert named in capsys.readouterr().err
