"""Kappa: a replayable event platform. What a pipeline's file needs is exported here, and nothing else.

Read next: pipeline.py, table.py, topic.py for the declarations; engine/job/job.py for how they run.
"""

from kappa.declare.ordered import Ordered, ordered
from kappa.declare.pipeline import Pipeline, pipeline
from kappa.declare.table import (
    Fold,
    Table,
    View,
    and_,
    count,
    first,
    hll,
    kll,
    latest,
    max_,
    min_,
    or_,
    set_,
    sum_,
    theta,
    top_k,
)
from kappa.declare.topic import Topic
from kappa.declare.windows import hop, tumble

__all__ = [
    "Fold",
    "Ordered",
    "Pipeline",
    "Table",
    "Topic",
    "View",
    "and_",
    "count",
    "first",
    "hll",
    "hop",
    "kll",
    "latest",
    "max_",
    "min_",
    "or_",
    "ordered",
    "pipeline",
    "set_",
    "sum_",
    "theta",
    "top_k",
    "tumble",
]
