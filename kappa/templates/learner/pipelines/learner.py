"""Online learning: each shop's model predicts each purchase, and then learns from the outcome."""

import math
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import Table, Topic, View, ordered, pipeline

OFFERS_SHOWN = Topic(
    "offers_shown",
    partitions=2,
    key="shop",
    event="""
        id string not null, shop string not null, price double not null,
        is_member boolean not null, bought boolean not null, happened_at timestamp not null
    """,
)
# How far a model moves at each offer. Another rate is another version: a replay and a diff.
LEARNING_RATE = 0.3
WEIGHTS = ("bias", "price_weight", "member_weight")


def learn(state: dict[str, Any], offer: Any) -> Iterator[dict[str, Any]]:
    """Predicts whether a customer buys an offer, and then updates the shop's model.

    The model is a logistic regression. It learns from the outcome by gradient descent.
    """
    inputs = (1.0, (offer["price"] - 50) / 50, float(offer["is_member"]))
    weights = [state[name] or 0.0 for name in WEIGHTS]
    chance = 1 / (1 + math.exp(-sum(w * x for w, x in zip(weights, inputs, strict=True))))
    shown, bought = state["shown"] or 0, state["bought"] or 0
    yield {
        "id": offer["id"],
        "shop": offer["shop"],
        "hour": offer["hour"],
        "chance": chance,
        "is_right": (chance >= 0.5) == offer["bought"],
        # The baseline says what most offers of the shop have come to so far.
        "is_baseline_right": (2 * bought >= shown) == offer["bought"],
    }
    error = offer["bought"] - chance
    for name, weight, x in zip(WEIGHTS, weights, inputs, strict=True):
        state[name] = weight + LEARNING_RATE * error * x
    state["shown"], state["bought"] = shown + 1, bought + offer["bought"]


@pipeline(
    reads={"offers_shown": OFFERS_SHOWN},
    writes=[
        Table(
            "models",
            keys=("shop",),
            fold=ordered(
                learn,
                state="bias double, price_weight double, member_weight double, shown bigint, "
                "bought bigint",
                emits="predictions",
            ),
        ),
        Table(
            "predictions",
            emitted="id string, shop string, hour timestamp, chance double, is_right boolean, "
            "is_baseline_right boolean",
        ),
        View(
            "accuracies",
            """
            select hour, count(*) as predictions, count(*) filter (is_right) as model_right,
                count(*) filter (is_baseline_right) as baseline_right
            from predictions group by hour
            """,
            keys=("hour",),
        ),
    ],
)
def learner(offers_shown: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each offer, with the hour of the offer.

    The step `learn` folds the rows of each shop to the shop's model.
    """
    return {"models": offers_shown.withColumn("hour", F.date_trunc("hour", "happened_at"))}
