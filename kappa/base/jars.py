"""The jars of the broker and of Spark: locked in `jars.lock`, fetched once per user by Ivy, held to their SHA-256.

Ivy ships inside pyspark, so nothing but Java is needed, and Ivy's own default repository is used unless `jars.repository`
names another. Ivy resolves nothing here: each jar is named with its exact version and without what it depends on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import quoteattr

from kappa.base.cache import user_cache
from kappa.base.errors import Damaged, KappaError, Unreachable
from kappa.base.java import Java

Use = Literal["broker", "spark"]

# A verified jar carries this time of change: one that was touched since doesn't, and is read again. It is the same on
# each fetch because the JVM's class archive (engine/spark/cds.py) refuses jars whose time has changed.
_VERIFIED_NS = 1_000_000_000 * 10**9
# Ivy's own timeouts stand between bytes; this one only catches a process that hangs.
_LONGEST_SILENCE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock: what it is used for, its coordinates, and the bytes it must have."""

    use: Use
    size: int
    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        """The jar's name in the cache."""
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class Jars:
    """Where the jars lie, in the order of the lock."""

    broker: tuple[Path, ...]
    spark: tuple[Path, ...]


def ensure_jars(java: Java, *, cache: Path | None = None, repository: str | None = None) -> Jars:
    """Gives the paths of all jars, fetching those that are not in the cache or not what the lock says.

    Raises Unreachable where the repository doesn't answer, Damaged where it gives other bytes than the lock's.
    """
    locked = parse_lock(
        resources.files("kappa.base").joinpath("jars.lock").read_text(encoding="utf-8")
    )
    folder = default_cache() if cache is None else cache
    if any(not _is_verified(folder, jar) for jar in locked):
        with _alone_in(folder):
            # Another process may have fetched them while this one waited.
            missing = [jar for jar in locked if not _verify(folder / jar.file_name, jar)]
            if missing:
                _fetch(missing, folder, java, repository)
    paths = {
        use: tuple(folder / jar.file_name for jar in locked if jar.use == use)
        for use in ("broker", "spark")
    }
    return Jars(broker=paths["broker"], spark=paths["spark"])


@cache
def spark_home() -> Path:
    """The folder of the installed PySpark, in which Spark's own jars and programs lie; PySpark is not imported for it."""
    found = find_spec("pyspark")
    assert found is not None, "it is installed with Kappa"
    assert found.origin is not None, "it is a package of files"
    return Path(found.origin).parent


def default_cache() -> Path:
    """`kappa/jars` in the user's cache folder: shared by all projects and all clones."""
    return user_cache("jars")


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Reads the lock: one jar a line, `use bytes sha256 group:artifact:version`; lines with `#` are prose."""
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match line.replace(":", " ").split():
            case ["broker" | "spark" as use, size, sha256, group, artifact, version] if (
                size.isdigit() and len(sha256) == 64
            ):
                jars.append(
                    Jar(
                        use=use,
                        size=int(size),
                        sha256=sha256,
                        group=group,
                        artifact=artifact,
                        version=version,
                    )
                )
            case _:
                raise Damaged(
                    f"jars.lock line {number} is no jar: {line.strip()}",
                    hint="restore kappa/base/jars.lock from the repository",
                )
    names = [jar.file_name for jar in jars]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise Damaged(
            f"jars.lock names {', '.join(sorted(repeated))} twice",
            hint="restore kappa/base/jars.lock from the repository",
        )
    return tuple(jars)


def _is_verified(folder: Path, jar: Jar) -> bool:
    try:
        found = (folder / jar.file_name).stat()
    except OSError:
        return False
    return found.st_size == jar.size and found.st_mtime_ns == _VERIFIED_NS


def _verify(path: Path, jar: Jar) -> bool:
    """True where the file is byte for byte the locked one; it is marked as such."""
    try:
        with path.open("rb") as content:
            matches = hashlib.file_digest(content, "sha256").hexdigest() == jar.sha256
    except FileNotFoundError:
        return False
    if matches:
        path.chmod(0o644)
        os.utime(path, ns=(_VERIFIED_NS, _VERIFIED_NS))
    return matches


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Only one process at a time fetches; the kernel ends the lock with its holder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise KappaError(
            f"the jar cache {folder} cannot be written: {error}",
            hint="set jars.cache in kappa.toml to a folder you may write",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(missing: Sequence[Jar], folder: Path, java: Java, repository: str | None) -> None:
    ivy = folder / "ivy"
    said = _run_ivy(missing, ivy, java, repository)
    wrong, absent = [], []
    for jar in missing:
        # Ivy files a jar under its packaging, which is `jars` or `bundles`.
        fetched = next(iter(ivy.glob(f"cache/{jar.group}/{jar.artifact}/*/{jar.file_name}")), None)
        if fetched is None:
            absent.append(jar)
        elif _verify(fetched, jar):
            fetched.replace(folder / jar.file_name)
        else:
            fetched.unlink()
            wrong.append(jar)
    if wrong:
        # What the repository gave is thrown away: the next attempt asks it again.
        shutil.rmtree(ivy, ignore_errors=True)
        names = ", ".join(jar.file_name for jar in wrong)
        raise Damaged(
            f"the repository gave other bytes than jars.lock expects for {names}",
            hint="try again; if it stays so, set jars.repository in kappa.toml to another repository",
        )
    if absent:
        # What Ivy has is kept, so that the next attempt goes on from there.
        raise Unreachable(
            f"{len(absent)} of {len(missing)} jars could not be fetched, {absent[0].file_name} among them: {said}",
            hint="see whether this machine reaches the internet, or set jars.repository in kappa.toml to a repository that it reaches",
        )
    shutil.rmtree(ivy, ignore_errors=True)


def _run_ivy(missing: Sequence[Jar], ivy: Path, java: Java, repository: str | None) -> str:
    """Has Ivy put the jars into its own cache below `ivy`; answers with the last complaint that it printed."""
    ivy.mkdir(exist_ok=True)
    (ivy / "ivy.xml").write_text(ivy_module(missing), encoding="utf-8")
    program = next(spark_home().glob("jars/ivy-*.jar"))
    # Its user folder is moved too: nothing is read from or left in the user's home.
    command = [
        java.command,
        f"-Divy.default.ivy.user.dir={ivy / 'user'}",
        "-jar",
        str(program),
        "-ivy",
        str(ivy / "ivy.xml"),
        "-cache",
        str(ivy / "cache"),
    ]
    if repository is not None:
        (ivy / "ivysettings.xml").write_text(ivy_settings(repository), encoding="utf-8")
        command += ["-settings", str(ivy / "ivysettings.xml")]
    log = ivy / "ivy.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        ) as process,
    ):
        try:
            _show_progress(process, missing, ivy / "cache")
        finally:
            if process.poll() is None:
                process.kill()
    complaints = [
        line.strip(" :\t")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if "Exception" in line or "not found" in line.lower()
    ]
    return complaints[-1] if complaints else "Ivy gave no reason"


def _show_progress(
    process: subprocess.Popen[bytes], missing: Sequence[Jar], ivy_cache: Path
) -> None:
    # For who has nothing to fetch, they cost a job's start more than all else here.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (
        TextColumn("fetching {task.fields[count]} jars"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("jars", total=sum(jar.size for jar in missing), count=len(missing))
        seen, last_change = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            here = sum(_size(path) for path in ivy_cache.glob("*/*/*/*.jar*"))
            if here != seen:
                seen, last_change = here, time.monotonic()
                progress.update(task, completed=here)
            elif time.monotonic() - last_change > _LONGEST_SILENCE_SECONDS:
                return


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # Ivy renames its part files when they are complete.
        return 0


def ivy_module(jars: Sequence[Jar]) -> str:
    """The Ivy module file that asks for exactly these jars."""
    uses = "".join(f'<conf name="{use}"/>' for use in sorted({jar.use for jar in jars}))
    asked = (
        f'    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)} transitive="false" conf="{jar.use}->master"/>'
        for jar in jars
    )
    return "\n".join(
        [
            '<ivy-module version="2.0">',
            '  <info organisation="kappa" module="jars"/>',
            f"  <configurations>{uses}</configurations>",
            "  <dependencies>",
            *asked,
            "  </dependencies>",
            "</ivy-module>",
        ]
    )


def ivy_settings(repository: str) -> str:
    """Ivy settings under which the one repository (of Maven's layout) is all there is."""
    return f"""<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers><ibiblio name="repository" m2compatible="true" root={quoteattr(repository)}/></resolvers>
</ivysettings>
"""
