"""The least length of a token that somebody chose."""

from __future__ import annotations

from kappa.base.errors import SettingsError

# By guessing, at whatever rate a network has, none so long is found.
_SHORTEST_TOKEN = 16


def ensure_long(token: str, where: str = "the token") -> None:
    """Raises SettingsError if a token is so short that it can be guessed; `where` names it."""
    if len(token) < _SHORTEST_TOKEN:
        raise SettingsError(
            f"{where} has {len(token)} characters, and a short one can be guessed",
            hint=f"take one of {_SHORTEST_TOKEN} at least, that nobody chose: openssl rand -hex 32",
        )
