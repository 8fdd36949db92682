"""Fraud: a large transfer soon after a login that succeeds behind failed ones."""

from pyspark.sql import DataFrame

from kappa import Table, Topic, View, pipeline

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


@pipeline(
    reads={"logins": LOGINS, "transfers": TRANSFERS},
    writes=[
        Table("logins"),
        Table("transfers"),
        View(
            "break_ins",
            """
            select entered.account, entered.id as login, entered.happened_at as entered_at,
                count(*) as failed
            from logins entered
            join logins tried on tried.account = entered.account
                and tried.happened_at
                    between entered.happened_at - interval '10 minutes' and entered.happened_at
            where entered.ok and not tried.ok
            group by entered.id, entered.account, entered.happened_at
            having count(*) >= 3
            """,
            keys=("account", "login"),
            by=("account",),
        ),
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
    """Keeps both histories; views find the pattern, whichever topic is ahead."""
    return {
        "logins": logins.select("id", "account", "ok", "happened_at"),
        "transfers": transfers.select("id", "account", "amount", "happened_at"),
    }
