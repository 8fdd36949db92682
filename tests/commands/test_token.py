"""Laws of `kappa token`: a token is printed once; additions and removals take effect at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typing_in import Kappa

from kappa.base.errors import SettingsError
from kappa.base.sections import Role
from kappa.base.settings import load_settings
from kappa.serving.access.accounts import Accounts
from kappa.serving.http.address import guarded_address


@pytest.fixture(autouse=True)
def by_ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAPPA_BY", "ada@test")


def accounts(folder: Path) -> Accounts:
    """Returns the accounts as a server of the project knows them."""
    return Accounts.of(load_settings(folder), folder / ".kappa")


def test_a_token_is_printed_once_and_works(kappa: Kappa, tmp_path: Path) -> None:
    """Stdout has only the token, for scripts; the file has only its hash."""
    code, token, told = kappa("token", "add", "grafana", "--role", "read", "--table", "page_hits")

    assert code == 0
    assert "is not shown again" in told
    assert "from now on each request to HTTP needs a token" in told
    found = accounts(tmp_path).known(token.strip())
    assert found is not None
    assert (found.roles, found.tables.names) == ({Role.READ}, {"page_hits"})
    _, listed, _ = kappa("token", "list", "-o", "json")
    assert token.strip() not in listed
    (row,) = json.loads(listed)
    told = (row["token"], row["roles"], row["tables"], row["made_by"])
    assert told == ("grafana", "read", "page_hits", "ada@test")
    assert all(
        token.strip() not in path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    )


def test_a_table_that_nothing_declares_is_told(kappa: Kappa, project: Path) -> None:
    """A token for an undeclared table is made with a warning, because the table may come later.

    A name that is computed is known only once its table serves.
    """
    (project / "pipelines" / "web.py").write_text(
        'HITS = Table("page_hits", keys=("page",))\n'
        "@pipeline(reads={}, writes=[HITS])\ndef web(): ...\n"
    )
    tables = ("--table", "page_hit", "--table", "page_hits", "--table", "web.rejects")

    code, token, told = kappa("token", "add", "grafana", "--role", "read", *tables)

    assert (code, token.startswith("kappa_")) == (0, True)
    warnings = [line for line in told.splitlines() if line.startswith("warning: ")]
    wanted = "warning: no table page_hit is declared or served yet: did you mean page_hits?"
    assert warnings == [wanted]


def test_a_removed_token_is_no_token(kappa: Kappa, tmp_path: Path) -> None:
    """A running server refuses a client whose token was removed."""
    server = accounts(tmp_path)
    _, token, _ = kappa("token", "add", "ci", "--role", "stage", "-o", "json")
    secret = json.loads(token)[0]["token"]
    assert server.known(secret) is not None

    assert kappa("token", "remove", "ci")[0] == 0
    assert server.known(secret) is None
    assert "no token by name yet" in kappa("token", "list")[1]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("add", "a"), 2, "--role"),
        (("add", "a", "--role", "reader"), 2, "reader"),
        (("add", "A B", "--role", "read"), 2, "is not a name for a token"),
        (("add", "a", "--role", "stage", "--table", "t"), 2, "the role stage reads all"),
        (("add", "a", "--role", "read", "--topic", "t"), 2, "narrow the role collect"),
        (("add", "ci", "--role", "admin"), 6, "there is a token ci"),
        (("remove", "cj"), 2, "there is no token cj"),
    ],
)
def test_a_token_that_cannot_be_meant_is_refused(
    kappa: Kappa, words: tuple[str, ...], code: int, told: str
) -> None:
    """A mistake is reported with what to type, and changes nothing."""
    kappa("token", "add", "ci", "--role", "stage")

    found, out, error = kappa("token", *words)

    assert (found, out) == (code, "")
    assert told in error
    assert len(json.loads(kappa("token", "list", "-o", "json")[1])) == 1


def test_a_token_by_name_guards_an_address(kappa: Kappa, tmp_path: Path) -> None:
    """Other machines are answered once a named token exists, even without `serve.token`."""
    with pytest.raises(SettingsError, match="there is no token"):
        guarded_address("0.0.0.0:8717", None, named=accounts(tmp_path).is_guarded)
    kappa("token", "add", "grafana", "--role", "read")
    assert guarded_address("0.0.0.0:8717", None, named=accounts(tmp_path).is_guarded).port == 8717
