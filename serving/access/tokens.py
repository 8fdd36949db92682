"""Named tokens: created once, stored as hashes, and read again when their file changes.

A token has 256 random bits, so a plain SHA-256 is enough to hide the token: nobody can find the
token by trying. The record of a token also contains the token's verifier for SCRAM-SHA-256 (RFC
5802, RFC 7677), in the format of PostgreSQL. With the verifier, the server can check that a
Postgres client knows the token.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from kappa.base.clock import now
from kappa.base.disk import put_file
from kappa.base.document_seal import sealed, unsealed
from kappa.base.errors import Conflict, Damaged, KappaError, SettingsError, UsageError, near_or_all
from kappa.base.sections import Role
from kappa.serving.access.roles import Identity, ensure_grant, identity_of

# By which scanners of secrets know a token in a text.
_PREFIX = "kappa_"
_RANDOM_BYTES = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SCRAM_ROUNDS = 4096


class NamedToken(Struct, frozen=True):
    """The stored record of a token, without the token itself.

    If `tables` is empty, the token allows all tables. If `topics` is empty, it allows all topics.
    `sha256` is the token's hash in hexadecimal digits. `made_at` and `made_by` have the same form
    as in the journal, and are empty for a token from the environment.
    """

    name: str
    roles: tuple[Role, ...]
    sha256: str
    scram: str
    tables: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    made_at: str = ""
    made_by: str = ""

    @property
    def identity(self) -> Identity:
        """Returns the identity of the client that uses the token."""
        return identity_of(f"token {self.name}", self.roles, self.tables, self.topics)


class _Stored(Struct, frozen=True):
    """The content of the token file.

    The file is sealed with a checksum, because a single changed bit could give a token the right to
    all tables.
    """

    format: int
    tokens: tuple[NamedToken, ...]


def named_token(
    name: str,
    token: str,
    roles: Sequence[Role],
    tables: Sequence[str] = (),
    topics: Sequence[str] = (),
    *,
    made_by: str = "",
) -> NamedToken:
    """Creates the record of a token.

    Raises UsageError if the name is not valid, and SettingsError if the grant is not valid.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is not a name for a token",
            hint="take small letters, digits, dots, hyphens and underscores, such as grafana",
        )
    ensure_grant(f"token {name}", roles, tables, topics)
    return NamedToken(
        name,
        tuple(role for role in Role if role in roles),
        sha256_of(token),
        _scram_verifier(token),
        tuple(sorted({*tables})),
        tuple(sorted({*topics})),
        now() if made_by else "",
        made_by,
    )


def sha256_of(token: str) -> str:
    """Returns the hash of a token, in hexadecimal digits."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def find_token(tokens: Sequence[NamedToken], given: str) -> NamedToken | None:
    """Returns the record of a token, or None if the token is not known.

    The token is compared with all records, so that the duration of the search does not reveal
    whether the token is known.
    """
    digest, found = sha256_of(given), None
    for each in tokens:
        if hmac.compare_digest(each.sha256, digest):
            found = each
    return found


def _scram_verifier(token: str) -> str:
    """Creates the SCRAM-SHA-256 verifier of a token, in the form of `pg_authid.rolpassword`."""
    salt = secrets.token_bytes(16)
    # Clients prepare a password so (SASLprep, RFC 4013); tokens that are made here stay unchanged.
    prepared = unicodedata.normalize("NFKC", token).encode(errors="surrogateescape")
    salted = hashlib.pbkdf2_hmac("sha256", prepared, salt, _SCRAM_ROUNDS)
    client = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, stored, server_text = (
        base64.b64encode(each).decode() for each in (salt, client, server)
    )
    return f"SCRAM-SHA-256${_SCRAM_ROUNDS}:{salt_text}${stored}:{server_text}"


class TokenFile:
    """The file of the named tokens. Commands change the file while other processes read it."""

    def __init__(self, path: Path) -> None:
        """Stores the path of the file. The file need not exist."""
        self.path = path
        # The file that was read, and its tokens: one value, since threads share it.
        self._read: tuple[tuple[int, int, int] | None, tuple[NamedToken, ...]] = (None, ())

    def tokens(self) -> tuple[NamedToken, ...]:
        """Returns the tokens that the file contains now, or an empty tuple if there is no file.

        Raises Damaged if the content of the file is damaged or comes from a newer version of Kappa,
        and KappaError if the file cannot be read.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unreadable(self.path, error) from error
        # A change is a new file under the old name.
        mark = found.st_ino, found.st_mtime_ns, found.st_size
        seen, tokens = self._read
        if mark != seen:
            tokens = _read_tokens(self.path)
            self._read = mark, tokens
        return tokens

    def add_token(
        self,
        name: str,
        roles: Sequence[Role],
        tables: Sequence[str] = (),
        topics: Sequence[str] = (),
        *,
        made_by: str,
    ) -> str:
        """Creates a token, stores its record, and returns the token.

        The record contains only a hash and a verifier of the token. Raises UsageError if the name
        is not valid, SettingsError if the grant is not valid, and Conflict if another token already
        has the name.
        """
        token = f"{_PREFIX}{secrets.token_urlsafe(_RANDOM_BYTES)}"
        record = named_token(name, token, roles, tables, topics, made_by=made_by)
        with self._changed_alone():
            there = self.tokens()
            if any(each.name == name for each in there):
                raise Conflict(
                    f"there is a token {name}",
                    hint="take another name, and remove the old one once its clients have the "
                    f"new one: kappa token remove {name}",
                )
            self._write((*there, record))
        return token

    def remove_token(self, name: str) -> NamedToken:
        """Removes the token with the given name, and returns its record.

        From then on, requests with the token are refused. Raises UsageError if no token has the
        name.
        """
        with self._changed_alone():
            there = self.tokens()
            found = next((each for each in there if each.name == name), None)
            if found is None:
                raise UsageError(
                    f"there is no token {name}", hint=near_or_all(name, [t.name for t in there])
                )
            self._write([each for each in there if each is not found])
        return found

    def _write(self, tokens: Sequence[NamedToken]) -> None:
        content, _ = sealed(msgspec.to_builtins(_Stored(1, tuple(tokens))))
        try:
            put_file(self.path, content, private=True)
        except OSError as error:
            raise KappaError(
                f"the tokens cannot be written to {self.path}: {error.strerror or error}",
                hint="see whether the disk is full or the folder may be written",
            ) from error

    @contextmanager
    def _changed_alone(self) -> Iterator[None]:
        """Locks the file against changes by other processes, for the duration of the block."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _read_tokens(path: Path) -> tuple[NamedToken, ...]:
    try:
        document, _ = unsealed(path.read_bytes())
        stored = msgspec.convert(document, _Stored)
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise Damaged(
            f"the tokens in {path} cannot be read: {error}",
            hint="bring the file back, or move it away and make the tokens anew: kappa token add",
        ) from error
    if stored.format != 1:
        raise Damaged(
            f"the tokens in {path} have the format {stored.format}",
            hint="the file comes from a newer version of Kappa",
        )
    return stored.tokens


def _unreadable(path: Path, error: OSError) -> KappaError:
    return KappaError(
        f"the tokens in {path} cannot be read: {error.strerror or error}",
        hint="the file must be readable by the user who runs Kappa",
    )


# By guessing, at whatever rate a network has, none so long is found.
_SHORTEST_TOKEN = 16


def ensure_long(token: str, where: str = "the token") -> None:
    """Raises SettingsError if a token has fewer than 16 characters, and so could be guessed.

    `where` is the name of the token in the message.
    """
    if len(token) < _SHORTEST_TOKEN:
        raise SettingsError(
            f"{where} has {len(token)} characters, and a short one can be guessed",
            hint=f"take one of {_SHORTEST_TOKEN} at least, that nobody chose: openssl rand -hex 32",
        )
