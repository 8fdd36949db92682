"""A machine whose environment has no keys of a bucket, but offers ways to get them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path

from http_server import QuietHandler

_TOKEN = "the-container's-own"


@dataclass
class Machine:
    """The service of a container that gives keys to processes with its `environment`."""

    keys: tuple[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    lasts_seconds: float = 3600.0
    token: str = ""
    # What it answers in place of keys.
    broken: str = ""
    asked: int = 0
    # Until when the keys last that it has given.
    end: datetime | None = None

    def answer(self) -> tuple[int, bytes]:
        self.asked += 1
        if self.broken:
            return 500, self.broken.encode()
        self.end = datetime.now(UTC) + timedelta(seconds=self.lasts_seconds)
        key_id, secret = self.keys
        given = {"AccessKeyId": key_id, "SecretAccessKey": secret, "Token": self.token}
        return 200, json.dumps({**given, "Expiration": f"{self.end:%Y-%m-%dT%H:%M:%SZ}"}).encode()


@contextmanager
def running_machine(keys: tuple[str, str], folder: Path) -> Iterator[Machine]:
    """Runs the service of a machine within the block. The user has no keys in files yet."""
    machine = Machine(keys)

    class Service(QuietHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == _TOKEN
            self.send(*(machine.answer() if allowed else (401, b"{}")))

    (folder / "token").write_text(_TOKEN)
    for name in ("credentials", "config"):
        (folder / name).write_text("")
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    machine.environment = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_CONFIG_FILE": str(folder / "config"),
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{service.server_port}/keys",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": _TOKEN,
    }
    thread = threading.Thread(target=service.serve_forever, daemon=True)
    thread.start()
    try:
        yield machine
    finally:
        service.shutdown()
        service.server_close()
        thread.join()
