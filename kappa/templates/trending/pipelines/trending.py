"""Trending words: words that more posts contain in one hour than in the hour before."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import Table, Topic, View, count, pipeline, tumble

POSTS = Topic(
    "posts",
    partitions=2,
    key="id",
    event="""
        id string not null, author string not null, text string not null,
        happened_at timestamp not null
    """,
)
# They are in every text, and trend never.
COMMON = ("a", "and", "is", "of", "on", "the", "to", "with")


@pipeline(
    reads={"posts": POSTS},
    writes=[
        Table("word_hours", keys=("word", "hour"), fold={"posts": count()}),
        View(
            "rising_words",
            """
            select word, hour, posts,
                posts - case when lag(hour) over by_hour = hour - interval '1 hour'
                    then lag(posts) over by_hour else 0 end as rise
            from word_hours
            window by_hour as (partition by word order by hour)
            """,
            keys=("word", "hour"),
            by=("word",),
        ),
        View(
            "trending",
            """
            select hour, row_number() over (
                    partition by hour order by rise desc, posts desc, word
                ) as place, word, posts, rise
            from rising_words
            qualify place <= 5
            """,
            keys=("hour", "place"),
            by=("hour",),
        ),
    ],
)
def trending(posts: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each post, word of the post, and hour. The table counts the rows.

    A word that occurs several times in a post has only one row.
    """
    words = F.array_distinct(F.split(F.lower("text"), "[^a-z]+"))
    return {
        "word_hours": posts.withColumn("hour", tumble("happened_at", "1 hour"))
        .withColumn("word", F.explode(words))
        .where((F.col("word") != "") & ~F.col("word").isin(*COMMON))
    }
