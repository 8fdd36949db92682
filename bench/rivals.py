"""The rivals: installs each rival, starts it, and reads its result.

If a rival cannot be set up, the reason is recorded, and the other rivals run. The rivals' programs
are in scripts/; each is written as the makers of the rival recommend. kappa_job.py runs Kappa.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import confluent_kafka
import pyspark
from bids import Input
from cells import PARTITIONS, TASKS, WAYS, Cell
from figures import Warm
from oracle import Rows

from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.declare.topic import Topic
from kappa.kafka.client import Log
from kappa.state.offsets import Offsets
from kappa.tables.stored_table import open_table
from kappa.tables.versions import files

SCRIPTS = Path(__file__).parent / "scripts"
# The heap that Kappa's jobs have by default is everybody's.
MEMORY = "2g"
_SPARK_BATCH = 1_000_000
_SET_UP_SECONDS = 1200.0
_CARGO_SECONDS = 3600.0


class NotThereError(Exception):
    """The error for a rival that cannot be set up here or has no valid result, with the reason."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run of a cell that is about to begin, with its input and the folder for its files."""

    cell: Cell
    given: Input
    bootstrap_servers: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Command:
    """A command to start, and its environment variables in addition to this process's own."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class Rival(Protocol):
    """A program that can execute the tasks named in `tasks`."""

    tasks: frozenset[str]

    def set_up(self, home: Path) -> Mapping[str, str]:
        """Installs all software that the rival needs below `home`, and returns the versions.

        Raises NotThereError if the rival cannot be set up.
        """

    def prepare(self, attempt: Attempt) -> Command:
        """Prepares a run, and returns the command to measure. The preparation is not measured."""

    def result(self, attempt: Attempt) -> Rows:
        """Maps each table to SQL with which DuckDB reads the rows that a run has written."""

    def warm(self, attempt: Attempt) -> Warm | None:
        """Returns the events and seconds of a run except its first part, or None if unknown."""


class Script:
    """A rival that is a script.

    The arguments of the script are the broker, the topic and a folder. The script may write
    `warm.json` to the folder.
    """

    tasks = frozenset({"totals"})

    def prepare(self, attempt: Attempt) -> Command:
        return Command(
            [
                *self.program(),
                attempt.bootstrap_servers,
                attempt.cell.topic,
                str(attempt.folder),
                *self.more(attempt),
            ]
        )

    def table(self, attempt: Attempt) -> str:
        """Returns the name of the task's only table. The folder of the table has the same name."""
        (table,) = TASKS[attempt.cell.task].wanted
        return table

    def program(self) -> Sequence[str]:
        raise NotImplementedError

    def more(self, _attempt: Attempt) -> Sequence[str]:
        return ()

    def result(self, attempt: Attempt) -> Rows:
        table = self.table(attempt)
        path = str(attempt.folder / table)
        found = open_table(path)
        return {table: read_parquet([] if found is None else files(path, found.version, None))}

    def warm(self, attempt: Attempt) -> Warm | None:
        told = attempt.folder / "warm.json"
        return Warm(**json.loads(told.read_text(encoding="utf-8"))) if told.exists() else None


class SparkScript(Script):
    """The plain script on Spark and Delta, with at most `batch` records per batch (0: no limit).

    The script uses the same packages and jars as Kappa, so that the versions are the same.
    """

    tasks = frozenset({"totals", "projection", "windows", "latest"})

    def __init__(self, *, batch: int) -> None:
        self._batch = batch

    def set_up(self, _home: Path) -> Mapping[str, str]:
        java = find_java()
        self._jars = ",".join(str(jar) for jar in ensure_jars(java).spark)
        return {
            "pyspark": version("pyspark"),
            "delta-spark": version("delta-spark"),
            "java": java.build,
        }

    def program(self) -> Sequence[str]:
        return [sys.executable, str(SCRIPTS / "spark_script.py")]

    def more(self, attempt: Attempt) -> Sequence[str]:
        # A small input in four batches, so that there are warm ones.
        return [
            self._jars,
            MEMORY,
            str(min(self._batch, attempt.cell.events // 4)),
            attempt.cell.task,
            self.table(attempt),
        ]


class PolarsScript(Script):
    """The Polars script, which needs no JVM. It runs in a separate Python environment."""

    tasks = frozenset({"totals", "projection", "windows"})
    _needs = ("polars==2.1.0", "confluent-kafka==2.16.1", "deltalake==1.6.6", "pyarrow==26.0.1")

    def set_up(self, home: Path) -> Mapping[str, str]:
        self._python = ensure_environment(home / "env" / "polars", self._needs)
        return dict(each.split("==") for each in self._needs)

    def program(self) -> Sequence[str]:
        return [str(self._python), str(SCRIPTS / "polars_script.py")]

    def more(self, attempt: Attempt) -> Sequence[str]:
        return [attempt.cell.task, self.table(attempt)]


class Consume(Script):
    """The Python script that only consumes the records. Its rate is the upper limit of any rate."""

    tasks = frozenset(TASKS)

    def set_up(self, _home: Path) -> Mapping[str, str]:
        return {
            "confluent-kafka": version("confluent-kafka"),
            "librdkafka": confluent_kafka.libversion()[0],
        }

    def program(self) -> Sequence[str]:
        return [sys.executable, str(SCRIPTS / "consume.py")]

    def result(self, attempt: Attempt) -> Rows:
        return {"consumed": f"read_csv('{attempt.folder / 'consumed.csv'}')"}


class ConsumeC(Consume):
    """The same consumer loop as in `Consume`, written in C.

    The program uses the librdkafka that the confluent_kafka wheel contains.
    """

    def set_up(self, home: Path) -> Mapping[str, str]:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise NotThereError("there is no C compiler (cc)")
        self._library = next(
            Path(confluent_kafka.__file__)
            .parent.with_name("confluent_kafka.libs")
            .glob("librdkafka*.so*"),
            None,
        )
        if self._library is None:
            raise NotThereError("confluent_kafka has no librdkafka beside it here")
        self._program = home / "consume"
        home.mkdir(parents=True, exist_ok=True)
        run([compiler, "-O2", "-o", str(self._program), str(SCRIPTS / "consume.c"), "-ldl"])
        return {"librdkafka": confluent_kafka.libversion()[0]}

    def prepare(self, attempt: Attempt) -> Command:
        records = sum(end for _, _, end in attempt.given.offsets.items())
        return Command(
            [
                str(self._program),
                str(self._library),
                attempt.bootstrap_servers,
                attempt.cell.topic,
                str(PARTITIONS),
                str(records),
                str(attempt.folder),
            ]
        )


class FlinkSql(Script):
    """PyFlink's SQL in batch mode, in a separate Python environment, with the Kafka connector."""

    tasks = frozenset({"totals", "projection", "windows"})
    # A setuptools with pkg_resources builds Flink's package; Beam needs it at run time too.
    _builder = ("setuptools==75.8.0", "wheel==0.45.1")
    _needs = ("apache-flink==2.3.0",)
    _connector = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"

    def set_up(self, home: Path) -> Mapping[str, str]:
        self._python = ensure_environment(
            home / "env" / "flink", self._needs, builder=self._builder
        )
        (self._jar,) = ensure_maven(home / "jars" / "flink", [self._connector], transitive=False)
        return {
            "apache-flink": self._needs[0].partition("==")[2],
            "connector": self._connector.rpartition(":")[2],
            "java": find_java().build,
        }

    def program(self) -> Sequence[str]:
        return [str(self._python), str(SCRIPTS / "flink_sql.py")]

    def more(self, attempt: Attempt) -> Sequence[str]:
        return [str(self._jar), str(cores()), attempt.cell.task, self.table(attempt)]

    def result(self, attempt: Attempt) -> Rows:
        table = self.table(attempt)
        written = sorted(
            str(file)
            for file in (attempt.folder / table).iterdir()
            if file.is_file() and not file.name.startswith(".")
        )
        # They are whole numbers, all of them.
        return {table: read_files("read_json", written, "format = 'newline_delimited'")}


class FlinkStreaming(FlinkSql):
    """The same query as in `FlinkSql` in streaming mode, up to the end of the topic.

    Whenever the row of a key changes, Flink writes the new row to another topic.
    """

    tasks = frozenset({"totals"})
    _into = "flink.totals"

    def prepare(self, attempt: Attempt) -> Command:
        log = Log(attempt.bootstrap_servers)
        log.delete(self._into)
        log.create(Topic(self._into, event="bidder bigint", partitions=1))
        return super().prepare(attempt)

    def more(self, attempt: Attempt) -> Sequence[str]:
        return [*super().more(attempt), self._into]

    def result(self, attempt: Attempt) -> Rows:
        log = Log(attempt.bootstrap_servers)
        newest = {
            record.key: record.value
            for record in log.records([self._into], Offsets(), log.end([self._into]))
        }
        written = attempt.folder / "newest.json"
        written.write_bytes(b"\n".join(value for value in newest.values() if value is not None))
        return {
            self.table(attempt): read_files(
                "read_json", [str(written)], "format = 'newline_delimited'"
            )
        }


class KafkaStreams(Script):
    """A Kafka Streams program, which is compiled on this machine."""

    _needs = (
        "org.apache.kafka:kafka-streams:4.4.0",
        "com.fasterxml.jackson.core:jackson-core:2.19.2",
        "org.slf4j:slf4j-nop:1.7.36",
    )

    def set_up(self, home: Path) -> Mapping[str, str]:
        java = find_java()
        compiler = java.home / "bin" / "javac"
        if not compiler.exists():
            raise NotThereError(f"there is no javac in {java.home}: it takes a JDK")
        jars, classes = (
            ensure_maven(home / "jars" / "streams", self._needs, transitive=True),
            home / "streams",
        )
        classes.mkdir(parents=True, exist_ok=True)
        self._java, self._class_path = java.command, ":".join(map(str, [classes, *jars]))
        run(
            [
                str(compiler),
                "-cp",
                self._class_path,
                "-d",
                str(classes),
                str(SCRIPTS / "Totals.java"),
            ]
        )
        return {"kafka-streams": self._needs[0].rpartition(":")[2], "java": java.build}

    def program(self) -> Sequence[str]:
        return [self._java, f"-Xmx{MEMORY}", "-cp", self._class_path, "Totals"]

    def more(self, _attempt: Attempt) -> Sequence[str]:
        return [str(cores())]

    def result(self, attempt: Attempt) -> Rows:
        return {"totals": f"read_csv('{attempt.folder / 'totals.csv'}')"}


class QuixStreams(Script):
    """A Quix Streams program. It runs in a separate Python environment."""

    _needs = ("quixstreams==3.28.1", "confluent-kafka==2.12.2")

    def set_up(self, home: Path) -> Mapping[str, str]:
        self._python = ensure_environment(home / "env" / "quix", self._needs)
        return dict(each.split("==") for each in self._needs)

    def program(self) -> Sequence[str]:
        return [str(self._python), str(SCRIPTS / "quix_script.py")]

    def result(self, attempt: Attempt) -> Rows:
        return {"totals": f"read_csv('{attempt.folder / 'totals.csv'}')"}


class Pathway(Script):
    """A Pathway program, with a thread per core. It runs in a separate Python environment.

    Pathway's license (BSL 1.1) allows its use here; no part of it is contained in Kappa.
    """

    _needs = ("pathway==0.33.0",)

    def set_up(self, home: Path) -> Mapping[str, str]:
        self._python = ensure_environment(home / "env" / "pathway", self._needs)
        return dict(each.split("==") for each in self._needs)

    def prepare(self, attempt: Attempt) -> Command:
        command = super().prepare(attempt)
        return Command(command.arguments, {"PATHWAY_THREADS": str(cores())})

    def program(self) -> Sequence[str]:
        return [str(self._python), str(SCRIPTS / "pathway_script.py")]

    def result(self, attempt: Attempt) -> Rows:
        written = attempt.folder / "totals.csv"
        # Its files say when a row came and went (`diff`): in the end one row of each key is left.
        return {
            "totals": (
                "(select bidder, bids, total, lowest, highest "
                f"from read_csv('{written}') group by all having sum(diff) > 0)"
            )
        }


def every_rival() -> Mapping[str, Rival]:
    """Returns all rivals, by name."""
    from kappa_job import FromArchive, KappaJob

    return {
        "kappa": KappaJob(),
        "kappa-archive": FromArchive(),
        **{name: KappaJob(way=name) for name in WAYS},
        "spark": SparkScript(batch=_SPARK_BATCH),
        "spark-once": SparkScript(batch=0),
        "polars": PolarsScript(),
        "flink": FlinkSql(),
        "flink-streaming": FlinkStreaming(),
        "streams": KafkaStreams(),
        "quix": QuixStreams(),
        "pathway": Pathway(),
        "consume": Consume(),
        "consume-c": ConsumeC(),
    }


def set_up(
    rivals: Mapping[str, Rival], home: Path, say: Callable[[str], None]
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Sets up the rivals.

    Returns the versions of each rival, and a reason for each rival that could not be set up.
    """
    versions: dict[str, dict[str, str]] = {}
    missing: dict[str, str] = {}
    for name, rival in rivals.items():
        say(f"setting up {name}")
        try:
            versions[name] = dict(rival.set_up(home))
        except Exception as error:  # noqa: BLE001  # it is told, and stops no other
            missing[name] = f"could not be set up: {error}"
    return versions, missing


def read_parquet(paths: Sequence[str]) -> str:
    """Returns SQL with which DuckDB reads the given Parquet files, or "" if there are none."""
    return read_files("read_parquet", paths)


def read_files(reader: str, paths: Sequence[str], options: str = "") -> str:
    """Returns SQL with which DuckDB's function `reader` reads the given files, or "" for none."""
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"{reader}([{listed}]{', ' if options else ''}{options})" if paths else ""


def cores() -> int:
    """Returns the number of cores on which this process and its children may run."""
    return len(os.sched_getaffinity(0))


def ensure_environment(folder: Path, needs: Sequence[str], *, builder: Sequence[str] = ()) -> Path:
    """Returns the Python of an environment with exactly the packages `needs`.

    The environment is created if it does not exist yet, and pip installs the packages. If `builder`
    is given, these packages are installed first, and pip builds `needs` with them.
    """
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]

    def make() -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        if builder:
            run([*install, *builder])
        run([*install, *(["--no-build-isolation"] if builder else []), *needs])

    _ensure_made(folder, [sys.version, *builder, *needs], make)
    return python


def ensure_maven(folder: Path, coordinates: Sequence[str], *, transitive: bool) -> Sequence[Path]:
    """Fetches the jars named `group:artifact:version` that are missing, and returns all paths.

    Ivy, which is part of pyspark, fetches the jars. With `transitive`, their dependencies are
    fetched too.
    """
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))

    def make() -> None:
        asked = "".join(
            (
                f'<dependency org="{group}" name="{name}" rev="{revision}" '
                f'transitive="{str(transitive).lower()}" '
                f'conf="bench->{"default" if transitive else "master"}"/>'
            )
            for group, name, revision in (each.split(":") for each in coordinates)
        )
        module = (
            '<ivy-module version="2.0"><info organisation="bench" '
            'module="bench"/><configurations><conf '
            f'name="bench"/></configurations><dependencies>{asked}</dependencies></ivy-module>'
        )
        folder.mkdir(parents=True)
        (folder / "ivy.xml").write_text(module, encoding="utf-8")
        program = [
            find_java().command,
            f"-Divy.default.ivy.user.dir={folder / 'user'}",
            "-jar",
            str(ivy),
            "-ivy",
            str(folder / "ivy.xml"),
            "-cache",
            str(folder / "cache"),
        ]
        run([*program, "-retrieve", str(folder / "lib" / "[artifact]-[revision].[ext]")])

    _ensure_made(folder, [*coordinates, str(transitive)], make)
    return sorted((folder / "lib").glob("*.jar"))


def ensure_cargo(folder: Path, crate: Path) -> Path:
    """Returns the program of the Rust crate in `crate`, which cargo builds in `folder`.

    The crate is copied to `folder` first, so that cargo writes only there: also the Cargo.lock that
    names the versions of all dependencies. Cargo builds what is missing or has changed. Raises
    NotThereError if there is no cargo, or if the build fails.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        raise NotThereError("there is no cargo")
    copy = folder / "crate"
    shutil.copytree(crate, copy, dirs_exist_ok=True)
    of = ["--manifest-path", str(copy / "Cargo.toml"), "--target-dir", str(folder)]
    run([cargo, "build", "--release", *of], seconds=_CARGO_SECONDS)
    return folder / "release" / crate.name


def _ensure_made(folder: Path, of: Sequence[str], make: Callable[[], None]) -> None:
    """Creates a folder by calling `make`, unless the folder is complete.

    `of` lists the content of the folder. If the folder was made from another list, it is made
    again.
    """
    stamp, made_of = folder / ".made-of", hashlib.sha256("\n".join(of).encode()).hexdigest()
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == made_of):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        make()
        stamp.write_text(made_of, encoding="utf-8")


def run(command: Sequence[str], *, seconds: float = _SET_UP_SECONDS) -> None:
    """Runs a step of the setup of a rival.

    Raises NotThereError, with the step's last line of output, if the step fails or takes longer
    than `seconds`.
    """
    without = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONHOME"}
    }
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            env=without,
        )
    except subprocess.TimeoutExpired as error:
        raise NotThereError(
            f"{Path(command[0]).name} did not end within {seconds:.0f} seconds"
        ) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it left no word"]
        raise NotThereError(f"{Path(command[0]).name} ended with {done.returncode}: {said[-1]}")
