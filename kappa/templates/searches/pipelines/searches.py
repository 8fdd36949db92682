"""Standing queries: searches that wait for offers, with an alert for each offer found."""

from pyspark.sql import DataFrame

from kappa import Alert, Table, Topic, View, pipeline

SEARCHES = Topic(
    "searches",
    kind="compacted",
    key="id",
    event="""
        id string not null, person string not null, word string not null, category string,
        most decimal(10,2)
    """,
)
OFFERS = Topic(
    "offers",
    key="id",
    event="""
        id string not null, title string not null, category string not null,
        price decimal(10,2) not null, happened_at timestamp not null
    """,
)


@pipeline(
    reads={"offers": OFFERS, "searches": SEARCHES},
    writes=[
        Table("offers"),
        Table("searches", latest=SEARCHES),
        View(
            "found",
            """
            select s.id as search, o.id as offer, s.person, o.title, o.price, o.happened_at
            from searches s
            join offers o on contains(lower(o.title), lower(s.word))
                and (s.category is null or o.category = s.category)
                and (s.most is null or o.price <= s.most)
            """,
            keys=("search", "offer"),
        ),
        Alert("found-offers", of="found", to="page", on=["insert"]),
    ],
)
def searches(offers: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each offer. The view `found` joins offers with the matching searches."""
    return {"offers": offers.select("id", "title", "category", "price", "happened_at")}
