"""Acts, roles and identities, and the only function that decides about rights. Pure.

Each route of a server names an act, and the function `may` decides whether the client may do this
act before the route runs. The HTTP server, the page, the collector, and every other server on the
network work in this way. docs/reference/roles.md documents the role that each act requires.

A stronger role includes the weaker roles: `admin` > `operate` > `stage` > `read`. `collect` is
separate, and only `admin` includes it. A grant of `read` that names tables is narrower: its client
can read only these tables, and nothing else of the platform.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from kappa.base.errors import KappaError, SettingsError
from kappa.base.sections import Role
from kappa.declare.options import REJECTS


class Act(StrEnum):
    """An act that a client can request."""

    # Of a table, which is the object.
    READ = "read"
    # Of the platform: pipelines, builds, rollouts, topics by name, metrics, the journal.
    LOOK = "look"
    # Of raw records, rejected or not, and of logs.
    INSPECT = "inspect"
    # Of a topic, which is the object.
    COLLECT = "collect"
    PLAN = "plan"
    REHEARSE = "rehearse"
    STAGE = "stage"
    VERIFY = "verify"
    ABANDON = "abandon"
    PROMOTE = "promote"
    UNDO = "undo"
    RETIRE = "retire"
    PAUSE = "pause"
    RESUME = "resume"
    REDRIVE = "redrive"


# The least role for each act.
LEAST_ROLE: Mapping[Act, Role] = {
    Act.READ: Role.READ,
    Act.LOOK: Role.READ,
    Act.INSPECT: Role.STAGE,
    Act.COLLECT: Role.COLLECT,
    Act.PLAN: Role.STAGE,
    Act.REHEARSE: Role.STAGE,
    Act.STAGE: Role.STAGE,
    Act.VERIFY: Role.STAGE,
    Act.ABANDON: Role.STAGE,
    Act.PROMOTE: Role.OPERATE,
    Act.UNDO: Role.OPERATE,
    Act.RETIRE: Role.OPERATE,
    Act.PAUSE: Role.OPERATE,
    Act.RESUME: Role.OPERATE,
    Act.REDRIVE: Role.OPERATE,
}
# Each role with the roles that it includes.
_INCLUDED: Mapping[Role, frozenset[Role]] = {
    Role.READ: frozenset({Role.READ}),
    Role.COLLECT: frozenset({Role.COLLECT}),
    Role.STAGE: frozenset({Role.STAGE, Role.READ}),
    Role.OPERATE: frozenset({Role.OPERATE, Role.STAGE, Role.READ}),
    Role.ADMIN: frozenset(Role),
}


class Forbidden(KappaError):
    """The error for an act that the client's roles do not allow."""

    status = 403


@dataclass(frozen=True, slots=True)
class TableGrant:
    """The tables that a client may read. `names` is None for all tables.

    A name belongs to a table or a view. `PIPELINE.rejects` means the rejects of one pipeline, and
    `rejects` means the rejects of all pipelines.
    """

    names: frozenset[str] | None = None

    @property
    def is_all(self) -> bool:
        """Returns True if all tables may be read."""
        return self.names is None

    def allows(self, pipeline: str, table: str) -> bool:
        """Returns True if a table or view of a pipeline may be read."""
        return self.has(table_object(pipeline, table))

    def has(self, table: str) -> bool:
        """Returns True if a table may be read. `table` is a name that `table_object` returns."""
        if self.names is None or table in self.names:
            return True
        return table.endswith(f".{REJECTS}") and REJECTS in self.names


ALL_TABLES = TableGrant()


def table_object(pipeline: str, table: str) -> str:
    """Returns the name by which the function `may` identifies a table or view.

    Each table has one pipeline, so the name is the table's own name. Only `rejects` occurs in
    several pipelines, so its name is `PIPELINE.rejects`.
    """
    return f"{pipeline}.{table}" if table == REJECTS else table


@dataclass(frozen=True, slots=True)
class Identity:
    """A known client: its name in the journal, and its rights.

    `topics` contains the topics to which the client may send events, or is None for all topics.
    """

    name: str
    roles: frozenset[Role]
    tables: TableGrant = ALL_TABLES
    topics: frozenset[str] | None = None

    @property
    def may_read_all(self) -> bool:
        """Returns True if the client may read all tables and the state of the platform."""
        return self.tables.is_all and may(self, Act.READ)


def identity_of(
    name: str, roles: Iterable[Role], tables: Iterable[str] = (), topics: Iterable[str] = ()
) -> Identity:
    """Creates the identity of a client from its name and the granted rights.

    The rights are the `roles`, for the given tables and topics. If `tables` or `topics` is empty,
    all tables or all topics are allowed.
    """
    roles, tables, topics = frozenset(roles), frozenset(tables), frozenset(topics)
    return Identity(name, roles, TableGrant(tables or None), topics or None)


# Who asks a server that knows no token: such a server answers this machine alone.
THIS_MACHINE = Identity("this machine", frozenset({Role.ADMIN}))


def may(identity: Identity, act: Act, object_: str = "") -> bool:
    """Returns True if a client may do an act on an object.

    For the act `read`, `object_` is a table, named as by `table_object`. For the act `collect`,
    `object_` is a topic. If `object_` is empty, returns True if the client may do the act on at
    least one object.
    """
    included = frozenset[Role]().union(*(_INCLUDED[role] for role in identity.roles))
    if LEAST_ROLE[act] not in included:
        return False
    match act:
        case Act.READ:
            return not object_ or identity.tables.has(object_)
        case Act.LOOK:
            return identity.tables.is_all
        case Act.COLLECT:
            return not object_ or identity.topics is None or object_ in identity.topics
        case _:
            return True


def ensure_may(identity: Identity, act: Act, object_: str = "") -> None:
    """Raises Forbidden unless a client may do an act on an object."""
    if not may(identity, act, object_):
        raise refusal(identity, act, object_)


def refusal(identity: Identity, act: Act, object_: str = "") -> Forbidden:
    """Creates the error for an act that a client may not do, with the reason and a hint."""
    if may(identity, act):
        names = identity.topics if act is Act.COLLECT else identity.tables.names
        what = f"send to {object_}" if act is Act.COLLECT else f"read {object_}"
        return Forbidden(
            f"{identity.name} may not {what}",
            hint=f"it may {what.split(maxsplit=1)[0]}{' to' * (act is Act.COLLECT)} "
            f"{', '.join(sorted(names or ()))}",
        )
    if act is Act.LOOK and not identity.tables.is_all and Role.READ in identity.roles:
        return Forbidden(
            f"{identity.name} may not look at the platform: it is for tables alone",
            hint=f"it may read {', '.join(sorted(identity.tables.names or ()))}",
        )
    has = ", ".join(role for role in Role if role in identity.roles) or "none"
    return Forbidden(
        f"{identity.name} may not {act}: that needs the role {LEAST_ROLE[act]}, and it has {has}",
        hint="ask who runs this Kappa for a token of that role: kappa token add",
    )


@contextmanager
def naming_no_others(identity: Identity) -> Iterator[None]:
    """Replaces the hint of an error, so that it names no table that a client may not read.

    Only errors that the block raises are changed, and only if the client may not read all tables.
    The new hint lists the tables that the client may read.
    """
    try:
        yield
    except KappaError as error:
        if identity.tables.is_all:
            raise
        # Other clients may get the same error, so it stays as it is.
        told = type(error).__new__(type(error), *error.args)
        hint = f"{identity.name} may read {', '.join(sorted(identity.tables.names or ()))}"
        told.__dict__.update(error.__dict__, hint=hint)
        raise told from error


def ensure_grant(
    where: str, roles: Iterable[Role], tables: Iterable[str], topics: Iterable[str]
) -> None:
    """Raises SettingsError if the roles, tables and topics of a grant contradict each other.

    `where` is the name of the grant in messages.
    """
    roles, tables, topics = frozenset(roles), tuple(tables), tuple(topics)
    if not roles:
        raise SettingsError(
            f"{where} has no role, and could do nothing", hint=f"give one: {', '.join(Role)}"
        )
    above = [role for role in (Role.ADMIN, Role.OPERATE, Role.STAGE) if role in roles]
    if tables and (above or Role.READ not in roles):
        role = above[0] if above else next(iter(roles))
        why = f"the role {role} reads all" if above else f"the role {role} reads none"
        raise SettingsError(
            f"{where} names tables, and {why}",
            hint="tables are of the role read: leave them out, or take that role alone",
        )
    if topics and (Role.ADMIN in roles or Role.COLLECT not in roles):
        raise SettingsError(
            f"{where} names topics, and topics narrow the role collect alone",
            hint="leave the topics out, or take the role collect",
        )
    for table in tables:
        if "." in table and not table.endswith(f".{REJECTS}"):
            raise SettingsError(
                f"{where} names the table {table}, and a table's name has no pipeline",
                hint=f"name it {table.rpartition('.')[2]}; only rejects are named by pipeline: "
                f"PIPELINE.{REJECTS}",
            )
