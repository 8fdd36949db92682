"""The clients of a server: token holders, identified people, and this machine.

If no token and no issuer is configured, a server answers only clients on this machine, and these
clients may do everything. Once a server has known a token, the server requires a token from each
client until the server ends, even if the last token is removed meanwhile.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kappa.base.disk import put_file
from kappa.base.errors import SettingsError
from kappa.base.sections import Role
from kappa.base.settings import Settings
from kappa.serving.access.oidc import Issuer
from kappa.serving.access.roles import Act, Identity, may
from kappa.serving.access.tokens import NamedToken, TokenFile, ensure_long, find_token, named_token

# Below the root's local folder.
TOKENS = "access/tokens.json"
_KEY = "access/page.key"
_KEY_BYTES = 32
# Who has the token of the settings, `serve.token`.
OWNER = Identity("the server's token", frozenset({Role.ADMIN}))


class Accounts:
    """The clients that a server knows. Any thread may use the object."""

    def __init__(
        self,
        *,
        token: str | None = None,
        given: Sequence[NamedToken] = (),
        file: TokenFile | None = None,
        issuer: Issuer | None = None,
        key_file: Path | None = None,
    ) -> None:
        """Stores the server's own token, the named tokens, and the issuer that identifies people.

        `given` contains the named tokens from the settings, and `file` contains the tokens that
        commands create. `key_file` stores the key that signs the cookies of browsers. Without
        `key_file`, each process generates its own key.
        """
        self.token = token
        self.issuer = issuer
        self._given = tuple(given)
        self._file = file
        self._key_file = key_file
        self._key = b""
        self._was_guarded = False
        self._takes: tuple[tuple[NamedToken, ...], bool] | None = None

    @classmethod
    def of(cls, settings: Settings, local: Path, *, token: str | None = None) -> Self:
        """Creates the accounts of a project from its settings.

        `local` is the folder of this host for the project's root. `token` replaces `serve.token`.
        Raises SettingsError if the settings contradict each other.
        """
        access = settings.access
        given = []
        for name, each in access.tokens.items():
            ensure_long(each.token, f"access.tokens.{name}.token")
            try:
                given.append(named_token(name, each.token, each.roles, each.tables, each.topics))
            except SettingsError as error:
                raise SettingsError(
                    f"access.tokens.{name}: {error.message}", hint=error.hint
                ) from None
        return cls(
            token=token or settings.serve.token or None,
            given=given,
            file=token_file(settings, local),
            issuer=Issuer(access) if access.oidc.issuer else None,
            key_file=local / _KEY,
        )

    @property
    def is_guarded(self) -> bool:
        """Returns True if each client must identify itself."""
        self._was_guarded = (
            self._was_guarded
            or self.token is not None
            or self.issuer is not None
            or bool(self.named_tokens())
        )
        return self._was_guarded

    def named_tokens(self) -> tuple[NamedToken, ...]:
        """Returns the named tokens of the settings and of the token file, as they are now.

        Raises the errors of `TokenFile.tokens`.
        """
        return (*self._given, *(() if self._file is None else self._file.tokens()))

    def named(self, name: str) -> NamedToken | None:
        """Returns the named token with the given name, or None if there is no such token."""
        return next((each for each in self.named_tokens() if each.name == name), None)

    def takes_events(self) -> bool:
        """Returns True if at least one named token has the right to send events."""
        stored = () if self._file is None else self._file.tokens()
        if self._takes is None or self._takes[0] is not stored:
            # Each event asks, and tokens seldom change.
            all_ = (*self._given, *stored)
            self._takes = stored, any(may(each.identity, Act.COLLECT) for each in all_)
        return self._takes[1]

    def known(self, token: str) -> Identity | None:
        """Returns the client that a token of Kappa identifies, or None if the token is unknown."""
        if self.token is not None and hmac.compare_digest(
            token.encode(errors="surrogateescape"), self.token.encode()
        ):
            return OWNER
        found = find_token(self.named_tokens(), token)
        return None if found is None else found.identity

    async def identity(self, bearer: str) -> Identity | None:
        """Returns the client that a token identifies, or None if the token is unknown.

        `bearer` is a token of Kappa or of the issuer. Raises TokenRefused if the issuer's token is
        wrong, and Unreachable if the issuer does not answer.
        """
        found = self.known(bearer)
        if found is not None or self.issuer is None or bearer.count(".") != 2:
            return found
        return await asyncio.to_thread(self.issuer.identity, bearer)

    def page_key(self) -> bytes:
        """Returns the secret key that signs browsers' cookies.

        The key is generated once. If the accounts have a `key_file` that can be written, the key is
        stored in this file, so that other processes use the same key.
        """
        if not self._key:
            self._key = self._kept_key()
        return self._key

    def salt_of(self, user: str) -> bytes:
        """Returns the 16 bytes of salt for a user name that is not the name of a token.

        The salt for a user name never changes, just as the salt of a token never changes. So an
        unknown client cannot find out from a salt whether a name belongs to a token.
        """
        name = user.encode(errors="surrogateescape")
        return hmac.digest(self.page_key(), b"salt of user " + name, "sha256")[:16]

    def _kept_key(self) -> bytes:
        made = secrets.token_bytes(_KEY_BYTES)
        if self._key_file is None:
            return made
        try:
            put_file(self._key_file, made, new=True, private=True)
            kept = self._key_file.read_bytes()
            if len(kept) != _KEY_BYTES:
                # Cut by a full disk or a power loss: each start would have a key of its own.
                put_file(self._key_file, made, private=True)
                kept = self._key_file.read_bytes()
        except OSError:
            # Browsers sign in anew when the server was started anew.
            return made
        return kept


def token_file(settings: Settings, local: Path) -> TokenFile:
    """Returns the file of a project's named tokens.

    `local` is the folder of this host for the project's root. The token file is in this folder,
    unless the settings name another file.
    """
    return TokenFile(settings.access.file or local / TOKENS)
