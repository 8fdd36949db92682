"""The server's side of SCRAM-SHA-256, by which a client shows a password without sending it. Pure.

Source: RFC 5802 and RFC 7677. Postgres's clients send no user name within SCRAM, and no channel is
bound. Messages are those of PostgreSQL, "SASL Authentication".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import unicodedata
from dataclasses import dataclass

MECHANISM = "SCRAM-SHA-256"
# As Postgres has it. A token is long and by chance, so more rounds would protect nothing.
_ROUNDS = 4096


class WrongPassword(Exception):
    """A password that is wrong, or an exchange that is not SCRAM."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """The facts by which a password is checked, and from which the password cannot be found."""

    salt: bytes
    rounds: int
    stored_key: bytes
    server_key: bytes


def verifier_of(password: str, salt: bytes | None = None, rounds: int = _ROUNDS) -> Verifier:
    """Makes the verifier of a password, with a new salt."""
    salt = secrets.token_bytes(16) if salt is None else salt
    prepared = unicodedata.normalize("NFKC", password).encode()
    salted = hashlib.pbkdf2_hmac("sha256", prepared, salt, rounds)
    client_key = _signed(salted, b"Client Key")
    return Verifier(
        salt, rounds, hashlib.sha256(client_key).digest(), _signed(salted, b"Server Key")
    )


def read_verifier(text: str) -> Verifier:
    """Reads a verifier as PostgreSQL writes it: `SCRAM-SHA-256$ROUNDS:SALT$STORED:SERVER`."""
    _, head, keys = text.split("$")
    rounds, salt = head.split(":")
    stored, server = keys.split(":")
    salt_bytes, stored_key, server_key = map(base64.b64decode, (salt, stored, server))
    return Verifier(salt_bytes, int(rounds), stored_key, server_key)


class ScramExchange:
    """One exchange with a client: the first message, then the final one."""

    def __init__(self, verifier: Verifier, nonce: str | None = None) -> None:
        self._verifier = verifier
        self._own_nonce = secrets.token_urlsafe(18) if nonce is None else nonce

    def answer_first(self, message: str, mechanism: str = MECHANISM) -> str:
        """Returns the answer to the client's first message. Raises WrongPassword.

        `mechanism` is the one that the client has chosen.
        """
        flag, comma, rest = message.partition(",")
        _identity, comma_again, bare = rest.partition(",")
        # With `p` a client binds a channel, which was not offered.
        if mechanism != MECHANISM or not comma or not comma_again or flag not in {"n", "y"}:
            raise WrongPassword
        parts = dict(each.partition("=")[::2] for each in bare.split(","))
        if "m" in parts or not parts.get("r"):
            raise WrongPassword
        self._head = message[: len(message) - len(bare)]
        self._nonce = parts["r"] + self._own_nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        self._said = f"{bare},r={self._nonce},s={salt},i={self._verifier.rounds}"
        return self._said[len(bare) + 1 :]

    def answer_final(self, message: str) -> str:
        """Returns the answer to the client's final message. Raises WrongPassword."""
        without_proof, _, proof = message.rpartition(",p=")
        parts = dict(each.partition("=")[::2] for each in without_proof.split(","))
        try:
            shown = base64.b64decode(proof, validate=True)
            head = base64.b64decode(parts.get("c", ""), validate=True)
        except (binascii.Error, ValueError):
            raise WrongPassword from None
        said = f"{self._said},{without_proof}".encode()
        signature = _signed(self._verifier.stored_key, said)
        if (
            head != self._head.encode()
            or not hmac.compare_digest(parts.get("r", "").encode(), self._nonce.encode())
            or len(shown) != len(signature)
        ):
            raise WrongPassword
        client_key = bytes(one ^ other for one, other in zip(shown, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            raise WrongPassword
        return f"v={base64.b64encode(_signed(self._verifier.server_key, said)).decode()}"


def _signed(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")
