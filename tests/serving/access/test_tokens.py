"""Named tokens: stored as hashes, changed while servers run, compared in constant time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
from pathlib import Path

import pytest

from kappa.base.errors import Conflict, Damaged, KappaError, SettingsError, UsageError
from kappa.base.sections import AccessSettings, CollectSettings, Role, ServeSettings, TokenSettings
from kappa.base.settings import Settings
from kappa.serving.access.accounts import OWNER, Accounts
from kappa.serving.access.roles import Act, may
from kappa.serving.access.tokens import TokenFile


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "access" / "tokens.json")


def test_a_token_is_known_by_its_name_and_roles(file: TokenFile) -> None:
    """A token that was printed once is accepted from then on."""
    token = file.add_token("grafana", [Role.READ], ["page_hits"], made_by="me@here")

    found = Accounts(file=TokenFile(file.path)).known(token)

    assert found is not None
    assert (found.name, found.roles) == ("token grafana", {Role.READ})
    assert may(found, Act.READ, "page_hits")
    assert not may(found, Act.READ, "revenue")
    assert len(token) > 40


def test_the_file_has_no_token_and_nothing_that_is_one(file: TokenFile) -> None:
    """Nothing in the file can be used as a token."""
    token = file.add_token("grafana", [Role.READ], made_by="me")
    content, accounts = file.path.read_text(), Accounts(file=file)

    assert token not in content
    assert token.removeprefix("kappa_") not in content
    (record,) = file.tokens()
    for each in (record.sha256, record.scram, record.scram.split("$")[-1]):
        assert accounts.known(each) is None


def test_the_scram_verifier_is_that_of_the_token(file: TokenFile) -> None:
    """A Postgres client can prove by SCRAM-SHA-256 that it knows the token (RFC 5802)."""
    token = file.add_token("grafana", [Role.READ], made_by="me")
    _, rounds_salt, keys = file.tokens()[0].scram.split("$")
    rounds, _, salt = rounds_salt.partition(":")
    stored, _, server = keys.partition(":")

    salted = hashlib.pbkdf2_hmac("sha256", token.encode(), base64.b64decode(salt), int(rounds))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert hashlib.sha256(client_key).digest() == base64.b64decode(stored)
    assert hmac.digest(salted, b"Server Key", "sha256") == base64.b64decode(server)


def test_tokens_come_and_go_without_a_restart(file: TokenFile) -> None:
    """A running server accepts a new token at once, and refuses a removed one at once."""
    accounts = Accounts(file=TokenFile(file.path))
    assert not accounts.is_guarded

    old = file.add_token("old", [Role.READ], made_by="me")
    assert accounts.is_guarded
    new = file.add_token("new", [Role.READ], made_by="me")
    assert accounts.known(old) is not None
    assert accounts.known(new) is not None
    file.remove_token("old")
    assert accounts.known(old) is None
    assert accounts.known(new) is not None


def test_a_server_that_asked_for_tokens_goes_on_asking(file: TokenFile) -> None:
    """The removal of the last token does not open the server."""
    accounts = Accounts(file=TokenFile(file.path))
    file.add_token("only", [Role.READ], made_by="me")
    assert accounts.is_guarded

    file.remove_token("only")
    assert accounts.is_guarded
    file.path.unlink()
    assert accounts.is_guarded
    assert not Accounts(file=file).is_guarded


def test_a_name_is_taken_once(file: TokenFile) -> None:
    """A name is used once, because the journal could not distinguish two clients with one name."""
    first = file.add_token("grafana", [Role.READ], made_by="me")

    with pytest.raises(Conflict, match="there is a token grafana"):
        file.add_token("grafana", [Role.ADMIN], made_by="me")
    assert Accounts(file=file).known(first) is not None
    with pytest.raises(UsageError, match="there is no token grafanna") as refused:
        file.remove_token("grafanna")
    assert "did you mean grafana?" in refused.value.hint


@pytest.mark.parametrize("name", ["", "Grafana", "a b", "../a", "a" * 65, "-a", "é"])
def test_a_name_is_plain(file: TokenFile, name: str) -> None:
    """A name must be plain, because it appears in journals, pages and logs."""
    with pytest.raises(UsageError, match="is not a name for a token"):
        file.add_token(name, [Role.READ], made_by="me")
    assert not file.path.exists()


def test_tokens_that_are_made_at_once_are_all_kept(file: TokenFile) -> None:
    """Tokens that are made at the same time are all kept: no command reverts another's change."""
    made = [
        threading.Thread(
            target=TokenFile(file.path).add_token,
            args=(f"t{number}", [Role.READ]),
            kwargs={"made_by": "me"},
        )
        for number in range(16)
    ]
    for each in made:
        each.start()
    for each in made:
        each.join()

    assert {each.name for each in file.tokens()} == {f"t{number}" for number in range(16)}


def test_a_damaged_file_lets_nobody_in_by_name(file: TokenFile) -> None:
    """Named tokens are refused, because a damaged file may have had fewer; the owner's works."""
    token = file.add_token("grafana", [Role.READ], made_by="me")
    accounts = Accounts(token="s3cret-of-the-server", file=file)
    assert accounts.known(token) is not None

    file.path.write_text("{")
    with pytest.raises(Damaged, match="cannot be read"):
        accounts.known(token)
    assert accounts.known("s3cret-of-the-server") is OWNER
    file.path.write_text('{"format": 2, "tokens": []}')
    with pytest.raises(Damaged, match="the format 2"):
        accounts.known(token)


def test_no_bit_of_the_file_gives_another_right(file: TokenFile) -> None:
    """Each changed bit is detected; a damaged field name could give access to all tables."""
    file.add_token("grafana", [Role.READ], ["page_hits"], made_by="me")
    whole, (record,) = file.path.read_bytes(), file.tokens()

    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        file.path.write_bytes(changed)
        with pytest.raises(Damaged):
            TokenFile(file.path).tokens()
    file.path.write_bytes(whole)
    assert TokenFile(file.path).tokens() == (record,)


def test_a_token_of_the_environment_is_known(tmp_path: Path) -> None:
    """`access.tokens` defines tokens where only environment variables can be set."""
    given = TokenSettings(token="0123456789abcdef", roles=[Role.COLLECT], topics=["visits"])
    settings = Settings(access=AccessSettings(tokens={"shop": given}))

    accounts = Accounts.of(settings, tmp_path)

    found = accounts.known("0123456789abcdef")
    assert found is not None
    assert found.name == "token shop"
    assert accounts.takes_events()
    assert accounts.is_guarded


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (TokenSettings(token="short", roles=[Role.READ]), "has 5 characters"),
        (TokenSettings(token="0123456789abcdef"), "has no role"),
    ],
)
def test_a_token_that_guards_nothing_is_refused(
    tmp_path: Path, given: TokenSettings, told: str
) -> None:
    """A short token can be guessed, and a token without a role does nothing."""
    with pytest.raises(SettingsError, match=told):
        Accounts.of(Settings(access=AccessSettings(tokens={"shop": given})), tmp_path)


def test_the_token_of_the_settings_is_the_owners(tmp_path: Path) -> None:
    """The token of `[serve]` may do everything, as before there were roles."""
    settings = Settings(serve=ServeSettings(token="s3cret-of-the-server"))
    accounts = Accounts.of(settings, tmp_path)

    assert accounts.known("s3cret-of-the-server") is OWNER
    assert all(may(OWNER, act) for act in Act)
    assert accounts.known("s3cret-of-the-serve") is None


def test_the_key_of_the_page_is_kept_and_private(tmp_path: Path) -> None:
    """Browsers stay signed in after a restart, and nobody else can sign a cookie."""
    first = Accounts(key_file=tmp_path / "access" / "page.key").page_key()

    assert Accounts(key_file=tmp_path / "access" / "page.key").page_key() == first
    assert (tmp_path / "access" / "page.key").stat().st_mode & 0o077 == 0
    assert Accounts().page_key() != Accounts().page_key()


@pytest.mark.parametrize("left", [b"", b"half a key"])
def test_half_a_key_of_the_page_is_made_anew(tmp_path: Path, left: bytes) -> None:
    """A full disk or a kill may leave half a key.

    If the key were not made again, each start would sign out all browsers.
    """
    (tmp_path / "page.key").write_bytes(left)
    first = Accounts(key_file=tmp_path / "page.key").page_key()

    assert len(first) == 32
    assert Accounts(key_file=tmp_path / "page.key").page_key() == first
    assert (tmp_path / "page.key").stat().st_mode & 0o077 == 0


def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    """A folder with this name, or an unreadable file, does not count as an empty file."""
    (tmp_path / "tokens.json").mkdir()
    with pytest.raises(KappaError, match="cannot be read"):
        TokenFile(tmp_path / "tokens.json").tokens()


def test_a_secret_token_is_in_no_settings_that_are_shown() -> None:
    """Printed settings contain no token."""
    given = TokenSettings(token="0123456789abcdef", roles=[Role.READ])
    settings = Settings(access=AccessSettings(tokens={"shop": given}), collect=CollectSettings())

    assert "0123456789abcdef" not in repr(settings)
    assert "0123456789abcdef" not in repr(given)
    assert os.environ.get("KAPPA__ACCESS__TOKENS") is None
