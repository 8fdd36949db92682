"""The server's side of SCRAM-SHA-256. Pure.

With SCRAM, a client proves that it knows a password, and does not send the password. Source: RFC
5802 and RFC 7677. Postgres clients send no user name within SCRAM, and this server does not offer
channel binding. PostgreSQL's documentation describes the messages in "SASL Authentication".
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
    """The error for a wrong password, or for messages that do not follow SCRAM."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """The values by which a password is checked. The values do not reveal the password."""

    salt: bytes
    rounds: int
    stored_key: bytes
    server_key: bytes


def verifier_of(password: str, salt: bytes | None = None, rounds: int = _ROUNDS) -> Verifier:
    """Creates the verifier of a password. If `salt` is None, a new salt is generated."""
    salt = secrets.token_bytes(16) if salt is None else salt
    prepared = unicodedata.normalize("NFKC", password).encode()
    salted = hashlib.pbkdf2_hmac("sha256", prepared, salt, rounds)
    client_key = _signed(salted, b"Client Key")
    return Verifier(
        salt, rounds, hashlib.sha256(client_key).digest(), _signed(salted, b"Server Key")
    )


def read_verifier(text: str) -> Verifier:
    """Parses a verifier in PostgreSQL's form: `SCRAM-SHA-256$ROUNDS:SALT$STORED:SERVER`."""
    _, head, keys = text.split("$")
    rounds, salt = head.split(":")
    stored, server = keys.split(":")
    salt_bytes, stored_key, server_key = map(base64.b64decode, (salt, stored, server))
    return Verifier(salt_bytes, int(rounds), stored_key, server_key)


class ScramExchange:
    """One exchange by which a client proves that it knows its password.

    The client sends a first message, and then a final message.
    """

    def __init__(self, verifier: Verifier, nonce: str | None = None) -> None:
        self._verifier = verifier
        self._own_nonce = secrets.token_urlsafe(18) if nonce is None else nonce

    def answer_first(self, message: str, mechanism: str = MECHANISM) -> str:
        """Returns the answer to the client's first message.

        `mechanism` is the mechanism that the client has chosen. Raises WrongPassword if the message
        is not valid.
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
        """Returns the answer to the client's final message.

        Raises WrongPassword if the message does not prove that the client knows the password.
        """
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
