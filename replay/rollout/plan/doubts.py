"""The names that may give another value each time, and why: the lint's knowledge. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FROM_RECORD = (
    "take it from the record: _timestamp, _partition and _offset stand beside the event's columns"
)
_KEYED = (
    "give the table a key and a fold: Kappa groups and folds, in an order that a replay repeats"
)
_AS_TOPIC = "produce it to a topic and read that: a replay must find it again"
_IN_CODE = "write it into the code, or produce it to a topic: a build's snapshot holds code alone"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason why something is doubtful, and how to write it otherwise."""

    why: str
    hint: str


CLOCK = Doubt("reads the clock", FROM_RECORD)
CHANCE = Doubt("is random", FROM_RECORD)
PLACE = Doubt("depends on the process or machine that runs it", FROM_RECORD)
ORDER = Doubt("depends on the order of rows", _KEYED)
NETWORK = Doubt("asks somebody else", _AS_TOPIC)
FILES = Doubt("reads what lies outside the code", _IN_CODE)

SPARK = "pyspark.sql.functions"
SPARK_NAMES: Mapping[str, Doubt] = {
    **dict.fromkeys(
        ("current_timestamp", "current_date", "curdate", "current_time", "localtimestamp", "now"),
        CLOCK,
    ),
    **dict.fromkeys(("rand", "randn", "randstr", "uniform", "uuid", "shuffle"), CHANCE),
    **dict.fromkeys(
        (
            "monotonically_increasing_id",
            "spark_partition_id",
            "input_file_name",
            "current_user",
            "session_user",
            "reflect",
            "java_method",
        ),
        PLACE,
    ),
    **dict.fromkeys(
        (
            "first",
            "first_value",
            "last",
            "last_value",
            "any_value",
            "collect_list",
            "collect_set",
            "array_agg",
            "listagg",
            "string_agg",
        ),
        ORDER,
    ),
}
# By its full name, whatever it was imported as; names within it count too.
_NAMES: Mapping[str, Doubt] = {
    **{
        f"{module}.{name}": kind
        for module in (SPARK, f"{SPARK}.builtin")
        for name, kind in SPARK_NAMES.items()
    },
    **dict.fromkeys(
        (
            "time.time",
            "time.time_ns",
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.perf_counter_ns",
        ),
        CLOCK,
    ),
    **dict.fromkeys(
        (
            "time.process_time",
            "time.process_time_ns",
            "time.thread_time",
            "datetime.datetime.now",
            "datetime.datetime.utcnow",
        ),
        CLOCK,
    ),
    **dict.fromkeys(
        (
            "datetime.datetime.today",
            "datetime.date.today",
            "pandas.Timestamp.now",
            "pandas.Timestamp.utcnow",
            "pandas.Timestamp.today",
        ),
        CLOCK,
    ),
    **dict.fromkeys(
        (
            "random",
            "secrets",
            "numpy.random",
            "uuid.uuid1",
            "uuid.uuid4",
            "uuid.uuid6",
            "uuid.uuid7",
            "os.urandom",
            "os.getrandom",
            "faker",
        ),
        CHANCE,
    ),
    **dict.fromkeys(
        (
            "uuid.getnode",
            "os.getpid",
            "os.getppid",
            "os.uname",
            "os.cpu_count",
            "os.getlogin",
            "platform",
            "getpass",
            "threading.get_ident",
        ),
        PLACE,
    ),
    **dict.fromkeys(
        (
            "requests",
            "urllib.request",
            "urllib3",
            "http.client",
            "httpx",
            "aiohttp",
            "socket",
            "ssl",
            "websocket",
            "websockets",
            "grpc",
        ),
        NETWORK,
    ),
    **dict.fromkeys(
        (
            "ftplib",
            "smtplib",
            "imaplib",
            "poplib",
            "xmlrpc.client",
            "paramiko",
            "boto3",
            "botocore",
            "google.cloud",
            "azure",
        ),
        NETWORK,
    ),
    **dict.fromkeys(
        (
            "redis",
            "psycopg",
            "psycopg2",
            "pymysql",
            "pymongo",
            "sqlalchemy",
            "sqlite3",
            "kafka",
            "confluent_kafka",
        ),
        NETWORK,
    ),
    **dict.fromkeys(
        (
            "os.environ",
            "os.environb",
            "os.getenv",
            "os.getcwd",
            "os.listdir",
            "os.scandir",
            "os.walk",
            "os.stat",
            "os.open",
            "io.open",
        ),
        FILES,
    ),
    **dict.fromkeys(
        (
            "os.path.exists",
            "os.path.isfile",
            "os.path.getmtime",
            "os.path.getsize",
            "subprocess",
            "os.system",
            "os.popen",
            "tempfile",
            "glob",
        ),
        FILES,
    ),
}
# Names that read the clock unless they are given a time: by how many arguments.
_UNLESS_GIVEN = {
    "time.localtime": 1,
    "time.gmtime": 1,
    "time.ctime": 1,
    "time.asctime": 1,
    "time.strftime": 2,
    f"{SPARK}.unix_timestamp": 1,
    f"{SPARK}.builtin.unix_timestamp": 1,
}
# Spark's expressions whose name is not the function's.
SPARK_CLASSES = {
    "curdate": "currentdate",
    "random": "rand",
    "sessionuser": "currentuser",
    "user": "currentuser",
    "unixtimestamp": "currenttimestamp",
}
_BUILTINS: Mapping[str, Doubt] = {"open": FILES, "input": FILES, "hash": PLACE, "id": PLACE}
# Of whatever value: only files have these methods.
METHODS: Mapping[str, Doubt] = {"read_text": FILES, "read_bytes": FILES}


def doubt_of(full: str, arguments: int | None) -> Doubt | None:
    """Returns the doubt about a full name, called with so many arguments (None: not called)."""
    begins, _, builtin = full.partition(".")
    if begins == "builtins":
        # Passed on as a value it may be called too.
        return _BUILTINS.get(builtin)
    if full in _UNLESS_GIVEN:
        return CLOCK if arguments is not None and arguments < _UNLESS_GIVEN[full] else None
    parts = full.split(".")
    return next(
        (
            _NAMES[known]
            for length in range(1, len(parts) + 1)
            if (known := ".".join(parts[:length])) in _NAMES
        ),
        None,
    )
