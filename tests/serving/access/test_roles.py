"""The table of acts and roles, tested with `may` only."""

from __future__ import annotations

import pytest

from kappa.base.errors import SettingsError
from kappa.base.sections import Role
from kappa.serving.access.roles import (
    LEAST_ROLE,
    THIS_MACHINE,
    Act,
    Forbidden,
    ensure_grant,
    ensure_may,
    identity_of,
    may,
)

READER = identity_of("token r", [Role.READ], tables=["page_hits", "web.rejects"])


@pytest.mark.parametrize(
    ("role", "acts"),
    [
        (Role.READ, {Act.READ, Act.LOOK}),
        (Role.COLLECT, {Act.COLLECT}),
        (
            Role.STAGE,
            {*(Act.READ, Act.LOOK, Act.INSPECT, Act.PLAN, Act.REHEARSE, Act.STAGE, Act.VERIFY)}
            | {Act.ABANDON},
        ),
        (Role.OPERATE, {*Act} - {Act.COLLECT}),
        (Role.ADMIN, {*Act}),
    ],
)
def test_a_role_has_its_acts_and_no_others(role: Role, acts: set[Act]) -> None:
    """A role includes the acts of the roles below it. Only `admin` includes sending events."""
    someone = identity_of("token t", [role])

    assert {act for act in Act if may(someone, act)} == acts


def test_each_act_has_a_least_role() -> None:
    """Each act has a least role; without one, its refusal would be an internal error."""
    assert LEAST_ROLE.keys() == {*Act}
    assert all(may(THIS_MACHINE, act) for act in Act)


def test_nobody_without_a_role_may_do_anything() -> None:
    """A person without any grant is known, but may do nothing."""
    assert not any(may(identity_of("bob", []), act) for act in Act)


def test_a_reader_of_tables_sees_them_alone() -> None:
    """A grant for tables covers only these names, and hides the platform."""
    assert may(READER, Act.READ, "page_hits")
    assert may(READER, Act.READ, "web.rejects")
    assert may(READER, Act.READ)
    for other in ("revenue", "rejects", "shop.rejects", "PAGE_HITS", "page_hits.x"):
        assert not may(READER, Act.READ, other)
    assert not may(READER, Act.LOOK)


def test_rejects_of_all_pipelines_are_each_ones() -> None:
    """`rejects` covers the rejects of every pipeline, but no table with a similar name."""
    reader = identity_of("token r", [Role.READ], tables=["rejects"])

    assert may(reader, Act.READ, "web.rejects")
    assert may(reader, Act.READ, "rejects")
    assert not may(reader, Act.READ, "not_rejects")


def test_a_sender_sends_to_its_topics_alone() -> None:
    """Topics limit `collect`; a grant without topics covers all topics."""
    sender = identity_of("token s", [Role.COLLECT], topics=["visits"])

    assert may(sender, Act.COLLECT, "visits")
    assert not may(sender, Act.COLLECT, "orders")
    assert may(identity_of("token s", [Role.COLLECT]), Act.COLLECT, "orders")


@pytest.mark.parametrize(
    ("act", "object_", "message", "hint"),
    [
        (Act.READ, "revenue", "token r may not read revenue", "it may read page_hits, web.rejects"),
        (
            Act.LOOK,
            "",
            "token r may not look at the platform: it is for tables alone",
            "it may read page_hits, web.rejects",
        ),
        (
            Act.PROMOTE,
            "",
            "token r may not promote: that needs the role operate, and it has read",
            "ask who runs this Kappa for a token of that role: kappa token add",
        ),
    ],
)
def test_a_refusal_says_who_what_why_and_what_now(
    act: Act, object_: str, message: str, hint: str
) -> None:
    """The refusal names the client, the act, the reason, and the right to ask for."""
    with pytest.raises(Forbidden) as refused:
        ensure_may(READER, act, object_)

    assert (refused.value.message, refused.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("roles", "tables", "topics", "told"),
    [
        ([], [], [], "has no role"),
        ([Role.STAGE, Role.READ], ["page_hits"], [], "the role stage reads all"),
        ([Role.COLLECT], ["page_hits"], [], "the role collect reads none"),
        ([Role.READ], [], ["visits"], "topics narrow the role collect"),
        ([Role.READ], ["web.page_hits"], [], "a table's name has no pipeline"),
    ],
)
def test_a_grant_that_cannot_be_meant_is_refused(
    roles: list[Role], tables: list[str], topics: list[str], told: str
) -> None:
    """A limit without effect is refused, because people would believe that it has one."""
    with pytest.raises(SettingsError, match=told):
        ensure_grant("token t", roles, tables, topics)
