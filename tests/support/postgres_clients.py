"""A Postgres server of Kappa over builds made by hand, and the address for its clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
from programs import run_program

from kappa.serving.access.accounts import Accounts
from kappa.serving.postgres.server import PostgresBounds, PostgresServer
from kappa.serving.query.sandbox.question import Allowance
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.store import Store

TOKEN = "a-token-that-nobody-has-guessed"


class PostgresThread:
    """A server in a thread of this process, with its own sandbox."""

    def __init__(
        self,
        store: Store,
        allowance: Allowance | None = None,
        *,
        token: str | None = TOKEN,
        accounts: Accounts | None = None,
        tls: ssl.SSLContext | None = None,
        bounds: PostgresBounds | None = None,
        lease_seconds: float = 60.0,
    ) -> None:
        self.sandbox = Sandbox(allowance or Allowance(memory=256 << 20, seconds=20))
        self.token = token
        self.server = PostgresServer(
            store,
            self.sandbox,
            accounts=accounts or Accounts(token=token),
            lease_seconds=lease_seconds,
            tls=tls,
            bounds=bounds,
        )
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = int(self._listening.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="postgres server")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.sandbox.close()

    @property
    def dsn(self) -> str:
        """Returns the address as a URL."""
        return f"postgresql://reader:{self.token or ''}@127.0.0.1:{self.port}/kappa"

    @property
    def words(self) -> dict[str, object]:
        """Returns the address as named arguments."""
        user = {"user": "reader", "password": self.token or ""}
        return {"host": "127.0.0.1", "port": self.port, **user}

    def psql(self, *commands: str, sslmode: str = "prefer") -> str:
        """Runs commands in psql, without the user's settings; returns its whole output."""
        options = [part for each in commands for part in ("-c", each)]
        place = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGDATABASE": "kappa"}
        user = {"PGUSER": "reader", "PGPASSWORD": self.token or "", "PGSSLMODE": sslmode}
        found = run_program("psql", "-X", "-v", "ON_ERROR_STOP=1", *options, **place, **user)
        return found.stdout + found.stderr

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with self.server.running(self._listening):
            self._is_ready.set()
            await self._stop.wait()


@dataclass
class SwitchClient(ABC):
    """A Postgres client in transactions across switches, and the answers that it has seen."""

    dsn: str
    stop: threading.Event
    faults: list[str] = field(default_factory=list)
    transactions: int = 0
    generations: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Runs transactions until `stop` is set."""
        try:
            with psycopg.connect(self.dsn) as connection:
                seen = (0, 0)
                while not self.stop.is_set():
                    seen = self._look(connection, seen)
                    self.transactions += 1
                    self.generations.add(seen[0])
        except psycopg.Error as error:
            self.faults.append(f"error: {error!r}")

    @abstractmethod
    def _look(
        self, connection: psycopg.Connection[Any], before: tuple[int, int]
    ) -> tuple[int, int]:
        """Runs a transaction; returns its generation, and a count that grows within it."""


def certificate_context(folder: Path) -> ssl.SSLContext:
    """Makes a self-signed certificate for 127.0.0.1; returns the TLS context of the server."""
    from kappa.serving.postgres.server import tls_context

    certificate, key = folder / "server.pem", folder / "server.key"
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run(
        [
            *("openssl", "req", "-x509", *new_key, "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    found = tls_context(certificate, key)
    assert found is not None
    return found
