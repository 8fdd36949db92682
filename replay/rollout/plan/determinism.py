"""The determinism lint: finds code that may give other rows in a replay, by file and line. Pure.

A pipeline's rows must depend only on its records. The lint examines all code that the function
reaches (kappa/code/reach.py): bodies of UDFs, helpers, code that runs when modules are imported,
and SQL in strings. The lint examines names, and does not follow values. Spark finds more
nondeterministic expressions in the plan of the function (kappa/engine/spark/function_plan.py); such
an expression is reported with the line of the function. Views and checks are not linted, because
they are computed again for each read, and no row of a table depends on them.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kappa.code.reach import reached_statements
from kappa.code.scan import ScannedModule, Statement, expression_root, imported_by
from kappa.code.sources import Find
from kappa.replay.rollout.plan.finding import Finding

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
    """A reason why code may give other rows in a replay, with a hint on how to change the code."""

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
# By full names, whatever the alias; names within a listed module count, too.
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
# Functions that read the clock with fewer arguments than this.
_UNLESS_GIVEN = {
    "time.localtime": 1,
    "time.gmtime": 1,
    "time.ctime": 1,
    "time.asctime": 1,
    "time.strftime": 2,
    f"{SPARK}.unix_timestamp": 1,
    f"{SPARK}.builtin.unix_timestamp": 1,
}
# Spark's expressions whose class has another name than the function.
SPARK_CLASSES = {
    "curdate": "currentdate",
    "random": "rand",
    "sessionuser": "currentuser",
    "user": "currentuser",
    "unixtimestamp": "currenttimestamp",
}
_BUILTINS: Mapping[str, Doubt] = {"open": FILES, "input": FILES, "hash": PLACE, "id": PLACE}
# Methods that only files have, of whatever value.
METHODS: Mapping[str, Doubt] = {"read_text": FILES, "read_bytes": FILES}


def _doubt_of(full: str, arguments: int | None) -> Doubt | None:
    """Returns the reason to doubt a name, or None if the name is harmless.

    `full` is the dotted name with its module. `arguments` is the number of arguments of the call,
    or None if the name is not called.
    """
    begins, _, builtin = full.partition(".")
    if begins == "builtins":
        # A function that is passed on as a value may be called, too.
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


_IMPORTS_BY_NAME = frozenset({"importlib.import_module", "__import__"})
_CALLED = "|".join((*SPARK_NAMES, "random"))
# In any text, since SQL is often composed elsewhere; allowing a space before ( would find prose.
_ANYWHERE = re.compile(rf"\b({_CALLED})\(", re.IGNORECASE)
# In the argument of a call that takes SQL: there, a bare word is not a column's name.
_IN_SQL = re.compile(
    rf"\b({_CALLED})\s*\(|\b(current_timestamp|current_date|current_time|localtimestamp|current_user)\b",
    re.IGNORECASE,
)
_SQL_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|`[^`]*`|--[^\n]*")
_AS_SQL = " in SQL"
_TAKES_SQL = frozenset({"expr", "selectExpr", "sql", "where", "filter"})


def find_doubts(module: str, attribute: str, find: Find) -> tuple[Finding, ...]:
    """Returns a finding for each line of code that may give other rows in a replay.

    The lint examines all code that `attribute` of `module` reaches. The findings are sorted by file
    and line.
    """
    found: dict[tuple[str, int, str], Finding] = {}
    for scanned, statements in reached_statements(module, attribute, find):
        for statement in statements:
            for line, what, kind in _in_statement(scanned, statement, find):
                path = scanned.source.path
                found.setdefault(
                    (path, line, what),
                    Finding(
                        f"{path}:{line} uses {what.removeprefix('builtins.')}, which {kind.why}",
                        kind.hint,
                        f"{path}:{line}",
                    ),
                )
    return tuple(found[place] for place in sorted(found))


def spark_findings(
    changing: Iterable[str], found: Iterable[Finding], line: str
) -> Iterator[Finding]:
    """Yields a finding for each nondeterministic Spark expression that the lint has not found.

    `changing` are Spark's names of the nondeterministic expressions in the function's plan. `found`
    are the lint's findings in the code. `line` is the function's file and line.
    """
    known = set(map(_as_spark, found))
    for kind in changing:
        if kind.lower() not in known:
            yield Finding(
                f"{line} uses Spark's {kind}, which gives another value each time",
                FROM_RECORD,
                line,
            )


def _as_spark(found: Finding) -> str:
    """Returns the lower-case name of the Spark expression that a finding of the lint is about.

    Returns "" if the finding is not about a Spark function.
    """
    # Only the middle of the message names the function; Python has functions of the same names.
    what = found.message.removeprefix(f"{found.name} uses ").partition(", which ")[0]
    if not (what.startswith(f"{SPARK}.") or what.endswith(_AS_SQL)):
        return ""
    plain = what.removesuffix(_AS_SQL).rpartition(".")[2].lower().replace("_", "")
    return SPARK_CLASSES.get(plain, plain)


def _in_statement(
    scanned: ScannedModule, statement: Statement, find: Find
) -> Iterator[tuple[int, str, Doubt]]:
    used = list(_doubts_used(scanned, statement, find))
    yield from used
    # An import inside a function has a use. If the lint finds no use, the import itself is a
    # finding.
    for node in ast.walk(statement.node):
        if isinstance(node, ast.Import | ast.ImportFrom) and node is not statement.node:
            for _, imported in imported_by(node, scanned.source, find):
                kind = _doubt_of(str(imported), None)
                if (
                    kind is not None
                    and find(imported.module.partition(".")[0]) is None
                    and not any(what.startswith(str(imported)) for _, what, _ in used)
                ):
                    yield node.lineno, str(imported), kind


def _doubts_used(
    scanned: ScannedModule, statement: Statement, find: Find
) -> Iterator[tuple[int, str, Doubt]]:
    names = _Names(scanned, statement, find)
    for node, arguments in _used_nodes(statement.node):
        match node:
            case ast.Constant(value=str()):
                yield from _in_text(node, _ANYWHERE)
            case ast.Call():
                if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                    yield node.lineno, f".{node.func.attr}()", METHODS[node.func.attr]
                yield from _given_sql(node)
                yield from _by_name(node, names)
            case ast.Name() | ast.Attribute():
                for full in names.full_names(node):
                    kind = _doubt_of(full, arguments)
                    if kind is not None:
                        yield node.lineno, full, kind
            case _:
                pass


def _used_nodes(
    node: ast.AST, arguments: int | None = None
) -> Iterator[tuple[ast.AST, int | None]]:
    """Yields all nodes of a syntax tree, as (node, number of arguments).

    The number of arguments is None if the node is not called. A dotted name is a single node.
    """
    yield node, arguments
    if expression_root(node) is not None:
        return
    for each in ast.iter_child_nodes(node):
        called = isinstance(node, ast.Call) and each is node.func
        yield from _used_nodes(
            each,
            len(node.args) + len(node.keywords) if called and isinstance(node, ast.Call) else None,
        )


class _Names:
    """Resolves the names in a statement to the full names of objects outside the project."""

    def __init__(self, scanned: ScannedModule, statement: Statement, find: Find) -> None:
        self._scanned = scanned
        self._names = statement.names
        self._find = find
        self._inside: dict[str, list[str]] = {}
        for node in ast.walk(statement.node):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias, imported in imported_by(node, scanned.source, find):
                    self._inside.setdefault(alias, []).append(str(imported))

    def full_names(self, node: ast.AST) -> Iterator[str]:
        """Yields the full names of the objects to which a dotted expression may refer.

        Objects of the project itself are omitted.
        """
        found = expression_root(node)
        if found is None:
            return
        name, attributes = found
        for full in self._name_origins(name):
            if self._find(full.partition(".")[0]) is None:
                yield ".".join((full, *attributes))

    def _name_origins(self, name: str) -> Iterator[str]:
        yield from self._inside.get(name, ())
        if name not in self._names:
            # The name is a parameter, or is bound within the statement.
            return
        imported = self._scanned.imports.get(name, ())
        yield from map(str, imported)
        if not imported and name not in self._scanned.defines:
            if name in dir(builtins):
                yield f"builtins.{name}"
            else:
                yield from (f"{star}.{name}" for star in self._scanned.stars)


def _by_name(call: ast.Call, names: _Names) -> Iterator[tuple[int, str, Doubt]]:
    """Yields the doubtful module that a call imports by name: `import_module("random")`.

    The element is (line, name of the module, reason). Yields nothing for any other call.
    """
    called = {full.removeprefix("builtins.") for full in names.full_names(call.func)}
    if (
        called & _IMPORTS_BY_NAME
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ):
        kind = _doubt_of(call.args[0].value, None)
        if kind is not None:
            yield call.lineno, call.args[0].value, kind


def _given_sql(call: ast.Call) -> Iterator[tuple[int, str, Doubt]]:
    """Yields the doubtful words in the string arguments of a call that takes SQL.

    Each element is (line, word, reason). Yields nothing for any other call.
    """
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    if name in _TAKES_SQL:
        for argument in call.args:
            for each in ast.walk(argument):
                if isinstance(each, ast.Constant):
                    yield from _in_text(each, _IN_SQL)


def _in_text(constant: ast.Constant, words: re.Pattern[str]) -> Iterator[tuple[int, str, Doubt]]:
    """Yields the doubtful words in a text that contains SQL, as (line, word, reason).

    `words` is the pattern of doubtful words. Quoted text and comments within the SQL are ignored.
    """
    if not isinstance(constant.value, str):
        return
    plain = _SQL_TEXT.sub(lambda quoted: re.sub(r"[^\n]", " ", quoted[0]), constant.value)
    for match in words.finditer(plain):
        word = next(group for group in match.groups() if group).lower()
        line = min(
            constant.lineno + plain.count("\n", 0, match.start()),
            constant.end_lineno or constant.lineno,
        )
        yield line, f"{word}{_AS_SQL}", SPARK_NAMES.get(word, CHANCE)
