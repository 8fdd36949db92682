"""The people of My Connect: connections, unread messages, home pages, and a funnel.

A person's home page shows the parts of the site that the person uses most.
"""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import Table, Topic, View, count, latest, max_, min_, or_, pipeline

SIGN_UPS = Topic("sign_ups", key="person", event=Path("schemas/sign_up.json"))
CONNECTIONS = Topic("connections", key="pair", event=Path("schemas/connection.json"))
MESSAGES = Topic("messages", key="id", event=Path("schemas/message.json"))
USES = Topic("uses", key="person", event=Path("schemas/use.json"))


@pipeline(
    reads={"sign_ups": SIGN_UPS, "connections": CONNECTIONS, "messages": MESSAGES, "uses": USES},
    writes=[
        # Both ends of each connection, parted ones too.
        Table(
            "contacts",
            keys=("person", "other"),
            fold={"state": latest("action"), "since": latest("happened_at")},
        ),
        # A message is a row from its first event on; to read a message twice changes nothing.
        Table(
            "messages",
            keys=("id",),
            fold={
                "sender": max_("sender"),
                "recipient": max_("recipient"),
                "text": max_("text"),
                "sent_at": min_("sent_at"),
                "is_read": or_("is_read"),
            },
        ),
        Table(
            "part_uses",
            keys=("person", "part"),
            fold={"uses": count(), "last_used_at": max_("used_at")},
        ),
        # The steps of a person: the funnel counts how many got how far.
        Table(
            "people",
            keys=("person",),
            fold={
                "name": max_("name"),
                "source": max_("source"),
                "signed_up_at": min_("signed_up_at"),
                "connected_at": min_("connected_at"),
                "messaged_at": min_("messaged_at"),
            },
        ),
        View(
            "connections",
            """
            select c.person, c.other, coalesce(p.name, c.other) as name, c.since
            from contacts c left join people p on p.person = c.other
            where c.state = 'connected'
            """,
            keys=("person", "other"),
        ),
        View(
            "unread_counts",
            """
            select recipient as person, count(*) as unread from messages
            where recipient is not null and not is_read group by recipient
            """,
            keys=("person",),
        ),
        View(
            "home_pages",
            """
            select person, row_number() over (
                    partition by person order by uses desc, part
                ) as place, part, uses
            from part_uses
            qualify place <= 4
            """,
            keys=("person", "place"),
            by=("person",),
        ),
        View(
            "funnel",
            """
            select source, count(*) as signed_up, count(connected_at) as connected,
                count(messaged_at) as messaged
            from people where signed_up_at is not null group by source
            """,
            keys=("source",),
            checks=["connected <= signed_up", "messaged <= signed_up"],
        ),
    ],
)
def people(
    sign_ups: DataFrame, connections: DataFrame, messages: DataFrame, uses: DataFrame
) -> dict[str, DataFrame]:
    """Returns the rows that each event adds to the tables about people.

    A connection becomes two rows, one for each of its two people.
    """
    ends = F.explode(
        F.array(
            F.struct(F.col("person").alias("of"), F.col("other").alias("to")),
            F.struct(F.col("other").alias("of"), F.col("person").alias("to")),
        )
    )
    contacts = connections.withColumn("end", ends)
    sent = messages.where("action = 'sent'")
    return {
        "contacts": contacts.withColumn("person", F.col("end.of")).withColumn(
            "other", F.col("end.to")
        ),
        "messages": messages.withColumn(
            "sent_at", F.when(F.col("action") == "sent", F.col("happened_at"))
        ).withColumn("is_read", F.col("action") == "read"),
        "part_uses": uses,
        "people": sign_ups.select("person", "name", "source", "signed_up_at")
        .unionByName(
            contacts.where("action = 'connected'").select(
                F.col("end.of").alias("person"), F.col("happened_at").alias("connected_at")
            ),
            allowMissingColumns=True,
        )
        .unionByName(
            sent.select(F.col("sender").alias("person"), F.col("happened_at").alias("messaged_at")),
            allowMissingColumns=True,
        ),
    }
