"""Fraud: large transfers soon after a successful login that followed several failed logins."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from kappa import Table, Topic, View, follows, pipeline, sequence

LOGINS = Topic(
    "logins",
    key="account",
    event="""
        id string not null, account string not null, ok boolean not null,
        happened_at timestamp not null
    """,
)
TRANSFERS = Topic(
    "transfers",
    key="account",
    event="""
        id string not null, account string not null, amount decimal(12,2) not null,
        happened_at timestamp not null
    """,
)


def failed(login: Mapping[str, Any]) -> bool:
    """Returns True if the login failed."""
    return not login["ok"]


def entered(login: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the values of a login that a break-in keeps, or None if the login failed."""
    return {"login": login["id"], "entered_at": login["happened_at"]} if login["ok"] else None


@pipeline(
    reads={"logins": LOGINS, "transfers": TRANSFERS},
    writes=[
        Table("transfers"),
        Table(
            "watched_accounts",
            keys=("account",),
            fold=sequence(
                follows(failed, times=3),
                entered,
                within="10 minutes",
                keeps="login string, entered_at timestamp",
                emits="break_ins",
            ),
        ),
        Table("break_ins", emitted="account string, login string, entered_at timestamp"),
        View(
            "suspicious_transfers",
            """
            select t.account, t.id as transfer, t.amount, t.happened_at as sent_at,
                max(b.entered_at) as broken_into_at
            from transfers t
            join break_ins b on b.account = t.account
                and t.happened_at between b.entered_at and b.entered_at + interval '10 minutes'
            where t.amount >= 500
            group by t.id, t.account, t.amount, t.happened_at
            """,
            keys=("account", "transfer"),
            by=("account",),
        ),
        View(
            "suspicious_accounts",
            """
            select account, count(*) as transfers, sum(amount) as amount
            from suspicious_transfers group by account
            """,
            keys=("account",),
        ),
    ],
)
def fraud(logins: DataFrame, transfers: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each login, and a row for each transfer.

    A fold finds break-ins in the order of an account's logins. A view joins each break-in with the
    account's transfers, so a transfer may arrive before the logins.
    """
    return {
        "watched_accounts": logins,
        "transfers": transfers.select("id", "account", "amount", "happened_at"),
    }
