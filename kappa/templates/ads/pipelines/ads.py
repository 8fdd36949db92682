"""Ads: each impression with its first click within ten minutes, and totals for each campaign."""

from pyspark.sql import DataFrame

from kappa import Table, Topic, View, pipeline

IMPRESSIONS = Topic(
    "impressions",
    partitions=2,
    key="id",
    event="id string not null, campaign string not null, happened_at timestamp not null",
)
CLICKS = Topic(
    "ad_clicks",
    partitions=2,
    key="impression",
    event="id string not null, impression string not null, happened_at timestamp not null",
)


@pipeline(
    reads={"impressions": IMPRESSIONS, "ad_clicks": CLICKS},
    writes=[
        Table("impressions"),
        Table("ad_clicks"),
        View(
            "clicked_impressions",
            """
            select i.id as impression, i.campaign, i.happened_at as shown_at,
                min(c.happened_at) as clicked_at,
                count(c.id) as clicks
            from impressions i
            left join ad_clicks c on c.impression = i.id
                and c.happened_at between i.happened_at and i.happened_at + interval '10 minutes'
            group by i.id, i.campaign, i.happened_at
            """,
            keys=("impression",),
        ),
        View(
            "campaigns",
            """
            select campaign, count(*) as impressions, count(clicked_at) as clicked,
                sum(clicks)::bigint as clicks
            from clicked_impressions group by campaign
            """,
            keys=("campaign",),
            checks=["clicked <= impressions"],
        ),
        View(
            "unmatched_clicks",
            """
            select c.impression, c.id as click, c.happened_at as clicked_at,
                i.happened_at as shown_at
            from ad_clicks c
            left join impressions i on i.id = c.impression
            where i.id is null
                or c.happened_at not between i.happened_at and i.happened_at + interval '10 minutes'
            """,
            keys=("impression", "click"),
            by=("impression",),
        ),
        View(
            "click_rates",
            """
            select campaign, round(100.0 * clicked / impressions, 1) as percent from campaigns
            """,
        ),
    ],
)
def ads(impressions: DataFrame, ad_clicks: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each impression, and a row for each click.

    A view joins each click with its impression, so either of the two events may arrive first.
    """
    return {
        "impressions": impressions.select("id", "campaign", "happened_at"),
        "ad_clicks": ad_clicks.select("id", "impression", "happened_at"),
    }
