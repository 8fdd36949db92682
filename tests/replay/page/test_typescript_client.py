"""The law of the API's description: a right TypeScript client can be generated from it.

The generator, the compiler and Node are real. They are fetched from npm once per user, with the
versions of the lock file.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from asking import Server
from house import SUPPORT
from page_world import World

from kappa.base.temporary_folders import user_cache
from kappa.replay.page import api, routes
from kappa.serving.http import changes, events
from kappa.serving.http.bounds import Bounds
from kappa.serving.query.sandbox.question import Allowance

pytestmark = [
    *(pytest.mark.slow, pytest.mark.long),
    pytest.mark.skipif(shutil.which("npm") is None, reason="not run: npm is not installed"),
]
SOURCES = SUPPORT / "typescript"
STRICT = (
    *("--strict", "--target", "es2022", "--module", "commonjs"),
    *("--lib", "es2022,dom,dom.iterable"),
)
# npm's words where it reaches no registry.
AWAY = ("EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ENOTFOUND", "ETIMEDOUT", "E403")
# The program is not for Node alone, so the compiler needs this one name of Node.
NODE = "declare const process: { argv: string[] };\n"


def run(folder: Path, *command: str) -> str:
    """Runs a command, which must succeed; returns its output."""
    found = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def fetched_tools() -> Path:
    """Returns the folder of the generator's and the compiler's commands."""
    lock = (SOURCES / "package-lock.json").read_bytes()
    cache = user_cache("typescript")
    place = cache / hashlib.sha256(lock).hexdigest()[:12]
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not place.is_dir():
            new = cache / "new"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, new)
            try:
                run(new, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
            except AssertionError as error:
                if any(code in str(error) for code in AWAY):
                    pytest.skip("not run: npm's packages cannot be fetched here")
                raise
            new.rename(place)
    return place / "node_modules" / ".bin"


def test_a_generated_client_compiles_and_asks(tmp_path: Path) -> None:
    """A strict compiler accepts the client, and the answers have the described types."""
    world = World(tmp_path)
    world.lives()
    world.be_up()
    tools, place = fetched_tools(), tmp_path / "client"
    place.mkdir()
    routers = {"router": api.router, "more": (changes.router, events.router, *routes.ROUTERS)}
    access = {"token": "s3cret", "bounds": Bounds(wrong_seconds=0.01)}
    with Server(world.store, Allowance(seconds=20), desk=world.desk, **access, **routers) as server:
        described = server.ask("GET", "/api/v1/openapi.json", Authorization="Bearer s3cret")
        (place / "openapi.json").write_bytes(described.body)
        run(place, str(tools / "openapi-ts"), "-i", "openapi.json", "-o", "client")
        program = (SOURCES / "program.ts").read_text(encoding="utf-8")
        (place / "program.ts").write_text(NODE + program, encoding="utf-8")
        run(place, str(tools / "tsc"), *STRICT, "program.ts")
        said = run(place, "node", "program.js", f"http://127.0.0.1:{server.port}", "s3cret")

    assert said.splitlines() == [
        "2 1 true VARCHAR,BIGINT",
        "by_page,page_hits,rejects",
        "1",
        "true true",
        "400 usage",
        "401 undefined",
    ]
