"""`[kafka]` and `[kafka.auth]`: the cluster, and the access of clients to the cluster. Values.

A secret is given by the environment or a separate file, and never in kappa.toml, which is copied
with the project, into images and histories.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import field

from kappa.base.errors import SettingsError
from kappa.base.section.section import SECRET, Section, Size


class Protocol(StrEnum):
    """The protocol between clients and the cluster: with TLS or without, as a user or not."""

    SASL_SSL = "SASL_SSL"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"


class Mechanism(StrEnum):
    """The mechanism by which a client proves its user."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


_OF_USERS = ("user", "password", "password_file")
_OF_TOKENS = ("token_url", "client_id", "client_secret", "client_secret_file", "scope")
_OF_TLS = ("ca", "certificate", "key")


class KafkaAuth(Section, frozen=True):
    """`[kafka.auth]`: access to a secured cluster, declared once for all clients."""

    protocol: Annotated[
        Protocol | None,
        "SASL_SSL, SSL or SASL_PLAINTEXT; none: SASL_SSL if there is a mechanism, else SSL",
    ] = None
    mechanism: Annotated[
        Mechanism | None,
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; none: a certificate, or nobody",
    ] = None
    user: Annotated[str, "the user of PLAIN and SCRAM"] = ""
    password: Annotated[str, "its password; from the environment alone", SECRET] = ""
    password_file: Annotated[
        Path | None, "a file with the password alone; read whenever a client is made"
    ] = None
    ca: Annotated[
        Path | None, "certificates (PEM) of the authorities that are trusted; none: the system's"
    ] = None
    certificate: Annotated[
        Path | None, "the client's certificate and its chain (PEM), for mutual TLS"
    ] = None
    key: Annotated[Path | None, "its key (PEM, PKCS#8, not encrypted)"] = None
    token_url: Annotated[str, "where OAUTHBEARER gets its tokens (OIDC, client credentials)"] = ""
    client_id: Annotated[str, "the client that asks for tokens"] = ""
    client_secret: Annotated[str, "its secret; from the environment alone", SECRET] = ""
    client_secret_file: Annotated[Path | None, "a file with the client's secret alone"] = None
    scope: Annotated[str, "the scope of a token"] = ""

    def __post_init__(self) -> None:
        """Raises SettingsError if the given settings contradict each other."""
        wrong = self._contradiction()
        if wrong:
            raise SettingsError(wrong, hint="see docs/howto/secured-kafka.md")

    @property
    def is_declared(self) -> bool:
        """Returns True if any setting of this section is given."""
        return any(self._has(name) for name in self.kinds())

    @property
    def wire(self) -> Protocol:
        """Returns the protocol in force."""
        if self.protocol is not None:
            return self.protocol
        return Protocol.SSL if self.mechanism is None else Protocol.SASL_SSL

    def _has(self, name: str) -> bool:
        return getattr(self, name) not in {"", None}

    def _contradiction(self) -> str:
        if not self.is_declared:
            return ""
        needed: tuple[str, ...] = ()
        others: tuple[str, ...] = (*_OF_USERS, *_OF_TOKENS)
        if self.mechanism is Mechanism.OAUTHBEARER:
            needed, others = _OF_TOKENS[:2], _OF_USERS
        elif self.mechanism is not None:
            needed, others = _OF_USERS[:1], _OF_TOKENS
        of = "no mechanism" if self.mechanism is None else f"mechanism {self.mechanism}"
        for name in others:
            if self._has(name):
                return f"kafka.auth has {of}, which takes no {name}"
        for name in needed:
            if not self._has(name):
                return f"kafka.auth has {of}, and no {name}"
        if (self.wire is Protocol.SSL) is not (self.mechanism is None):
            return f"kafka.auth has protocol {self.wire}, and {of}"
        for name in _OF_TLS:
            if self.wire is Protocol.SASL_PLAINTEXT and self._has(name):
                return f"kafka.auth has protocol {self.wire}, which takes no {name}"
        for one, other in (("certificate", "key"), ("key", "certificate")):
            if self._has(one) and not self._has(other):
                return f"kafka.auth has {one}, and no {other}"
        for name in ("password", "client_secret"):
            if self._has(name) and self._has(f"{name}_file"):
                return f"kafka.auth has both {name} and {name}_file"
        return ""


class KafkaSettings(Section, frozen=True):
    """`[kafka]`: which broker, and how clients talk to it."""

    bootstrap_servers: Annotated[
        str | None,
        "an existing cluster; none: Kappa runs its own broker",
    ] = None
    options: Annotated[
        dict[str, str],
        "any client setting, passed through to every client",
        # Options may have passwords.
        SECRET,
    ] = field(default_factory=dict)
    heap: Annotated[Size, "heap of the embedded broker"] = "512m"
    auth: KafkaAuth = KafkaAuth()

    def __post_init__(self) -> None:
        """Raises SettingsError if access is declared to the broker that is open."""
        if self.auth.is_declared and self.bootstrap_servers is None:
            raise SettingsError(
                "kafka.auth is for a cluster, and none is named: Kappa's own broker is open, to "
                "this machine alone",
                hint="name it in kafka.bootstrap_servers, or leave [kafka.auth] out",
            )
