"""The jars of the broker and of Spark. Ivy downloads them once per user.

The file jars.lock lists each jar with an exact version and a SHA-256, against which the jar is
checked. So Ivy resolves no dependencies. Ivy is part of pyspark, so only Java is needed. Ivy
downloads from its own default repository unless `jars.repository` names another repository. The
jars of Spark's S3 client are downloaded only for a root in a bucket.
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

from kappa.base.errors import Damaged, KappaError, Unreachable
from kappa.base.java.java import Java
from kappa.base.temporary_folders import user_cache

_ALWAYS: tuple[Use, ...] = ("broker", "spark")

# The modification time that marks a verified jar; a jar with another time is read again. The time
# is the same on each fetch, since the JVM's class archive (class_archive.py) refuses jars whose
# time has changed.
_VERIFIED_NS = 1_000_000_000 * 10**9
# Ivy's own timeouts are between bytes; this timeout catches a process that hangs.
_LONGEST_SILENCE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Jars:
    """The paths of the jars, in the order of the file jars.lock."""

    broker: tuple[Path, ...]
    spark: tuple[Path, ...]
    # The further jars that Spark needs for a root in a bucket; empty if not asked for.
    bucket: tuple[Path, ...] = ()


def ensure_jars(
    java: Java,
    *,
    cache: Path | None = None,
    repository: str | None = None,
    for_bucket: bool = False,
) -> Jars:
    """Returns the paths of all jars, after downloading those that are missing or damaged.

    With `for_bucket`, the jars of Spark's client for buckets are included. `cache` is the folder of
    the jars; by default, it is `kappa/jars` in the user's cache folder. `repository` is the URL of
    a Maven repository. Raises Unreachable if the repository does not answer, and Damaged if a
    downloaded jar does not match its SHA-256. Raises KappaError if the cache cannot be written.
    """
    text = resources.files("kappa.base.java").joinpath("jars.lock").read_text(encoding="utf-8")
    uses: tuple[Use, ...] = (*_ALWAYS, "bucket") if for_bucket else _ALWAYS
    locked = [jar for jar in parse_lock(text) if jar.use in uses]
    folder = user_cache("jars") if cache is None else cache
    if any(not _is_verified(folder, jar) for jar in locked):
        with _alone_in(folder):
            # Another process may have fetched the jars meanwhile.
            missing = [jar for jar in locked if not _verify(folder / jar.file_name, jar)]
            if missing:
                _fetch(missing, folder, java, repository)
    broker, spark, bucket = (
        tuple(folder / jar.file_name for jar in locked if jar.use == use)
        for use in (*_ALWAYS, "bucket")
    )
    return Jars(broker, spark, bucket)


@cache
def spark_home() -> Path:
    """Returns the folder of the installed PySpark, with Spark's jars, without importing PySpark."""
    found = find_spec("pyspark")
    assert found is not None, "it is installed with Kappa"
    assert found.origin is not None, "it is a package of files"
    return Path(found.origin).parent


def _is_verified(folder: Path, jar: Jar) -> bool:
    try:
        found = (folder / jar.file_name).stat()
    except OSError:
        return False
    return found.st_size == jar.size and found.st_mtime_ns == _VERIFIED_NS


def _verify(path: Path, jar: Jar) -> bool:
    """Returns True if a jar's file matches the SHA-256 of the jar in jars.lock.

    Then also sets the file's modification time to a value by which later calls recognize verified
    files. Returns False if the file does not match or does not exist.
    """
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
    """Locks the folder of the jars within the block, so that only one process downloads jars.

    The operating system also releases the lock if this process exits. Raises KappaError if the
    folder cannot be written.
    """
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
    complaint = _run_ivy(missing, ivy, java, repository)
    wrong, absent = [], []
    for jar in missing:
        # The folder in which Ivy puts a jar is named by its packaging, `jars` or `bundles`.
        fetched = next(iter(ivy.glob(f"cache/{jar.group}/{jar.artifact}/*/{jar.file_name}")), None)
        if fetched is None:
            absent.append(jar)
        elif _verify(fetched, jar):
            fetched.replace(folder / jar.file_name)
        else:
            fetched.unlink()
            wrong.append(jar)
    if wrong:
        # The files of the repository are deleted: the next attempt fetches them again.
        shutil.rmtree(ivy, ignore_errors=True)
        names = ", ".join(jar.file_name for jar in wrong)
        raise Damaged(
            f"the repository gave other bytes than jars.lock expects for {names}",
            hint=(
                "try again; if it stays so, set jars.repository in kappa.toml to another repository"
            ),
        )
    if absent:
        # Ivy's files are kept, so that the next attempt continues with them.
        raise Unreachable(
            f"{len(absent)} of {len(missing)} jars could not be fetched, "
            f"{absent[0].file_name} among them: {complaint}",
            hint=(
                "see whether this machine reaches the internet, "
                "or set jars.repository in kappa.toml to a repository that it reaches"
            ),
        )
    shutil.rmtree(ivy, ignore_errors=True)


def _run_ivy(missing: Sequence[Jar], ivy: Path, java: Java, repository: str | None) -> str:
    """Runs Ivy, which downloads the jars in `missing` into a folder below `ivy`.

    Returns the last error message that Ivy wrote, or another sentence if Ivy wrote none.
    """
    ivy.mkdir(exist_ok=True)
    (ivy / "ivy.xml").write_text(ivy_module(missing), encoding="utf-8")
    program = next(spark_home().glob("jars/ivy-*.jar"))
    # Ivy's user folder is moved too: Ivy reads nothing from the user's home, and leaves nothing.
    command = [java.command, f"-Divy.default.ivy.user.dir={ivy / 'user'}", "-jar", str(program)]
    command += ["-ivy", str(ivy / "ivy.xml"), "-cache", str(ivy / "cache")]
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
    # These imports take longer than all else here, and a job's start mostly has nothing to fetch.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("fetching {task.fields[count]} jars"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"fetching {len(missing)} jars of Kafka and Spark, once")
    with Progress(*columns, console=console, transient=True) as progress:
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
        # The file may be gone: Ivy renames a part file when it is complete.
        return 0


def ivy_module(jars: Sequence[Jar]) -> str:
    """Returns the text of an Ivy module file that requires exactly these jars."""
    uses = "".join(f'<conf name="{use}"/>' for use in sorted({jar.use for jar in jars}))
    asked = (
        f"    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)}"
        f' rev={quoteattr(jar.version)} transitive="false" conf="{jar.use}->master"/>'
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
    """Returns the text of Ivy settings that name a single repository, in Maven's layout."""
    resolver = f'<ibiblio name="repository" m2compatible="true" root={quoteattr(repository)}/>'
    return f"""<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers>{resolver}</resolvers>
</ivysettings>
"""


Use = Literal["broker", "spark", "bucket"]
_RESTORE = "restore kappa/base/java/jars.lock from the repository"


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar in jars.lock, with its use, size in bytes, SHA-256 and Maven coordinates."""

    use: Use
    size: int
    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        """Returns the name of the jar's file in the cache."""
        return f"{self.artifact}-{self.version}.jar"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parses the text of jars.lock, and returns the jars in their order.

    A line is `use bytes sha256 group:artifact:version`, or a comment after `#`. Raises Damaged if a
    line is neither, or if a jar occurs twice.
    """
    jars: list[Jar] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match line.replace(":", " ").split():
            case ["broker" | "spark" | "bucket" as use, size, sha256, group, artifact, version] if (
                size.isdigit() and len(sha256) == 64
            ):
                jars.append(Jar(use, int(size), sha256, group, artifact, version))
            case _:
                raise Damaged(
                    f"jars.lock line {number} is not a jar: {line.strip()}",
                    hint=_RESTORE,
                )
    names = [jar.file_name for jar in jars]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise Damaged(
            f"jars.lock names {', '.join(sorted(repeated))} twice",
            hint=_RESTORE,
        )
    return tuple(jars)
