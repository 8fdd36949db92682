"""Kappa: a replayable event platform. A pipeline's file imports all it needs from here.

The rooms, in the order to read them in; each may import only those before it
(tests/test_rooms.py has the whole plan):

    base      errors, settings, processes, and what else every room uses
    values    types and values, and how they are read or refused
    objects   objects below a root: the only door to obstore
    java      Java on this machine, and the jars of the broker and of Spark
    formats   formats of records: bytes to the fields of an event
    declare   what a user writes: topics, tables, pipelines
    records   valid records
    folds     one class per fold, with all its meanings
    state     all that is stored of a build
    registry  the only door to a schema registry
    sums      the sums of data files, and their check
    code      which version the code is
    journal   decisions and observations, as numbered records
    log       the only door to Kafka
    tables    the only door to Delta tables
    parsed    parsed queries: their columns, and whether their rows follow from their tables
    views     maintained views: the rows of a query, kept as a table
    lines     records of Kafka as lines of text
    broker    the embedded broker, a child process
    engine    offsets to rows, in a job of its own

`testing.py` is for tests of pipelines, and `pytest_plugin.py` keeps their Spark warm; `setup.py`
prepares the machine.
"""

from kappa.declare.alert import Alert
from kappa.declare.ordered import Ordered, ordered
from kappa.declare.parts.windows import hop, session, tumble
from kappa.declare.pipeline import Pipeline, pipeline
from kappa.declare.sink import Sink
from kappa.declare.table import Table
from kappa.declare.topic import Topic
from kappa.declare.view import View
from kappa.folds.fold import Fold
from kappa.folds.kinds.average import avg_
from kappa.folds.kinds.booleans import and_, or_
from kappa.folds.kinds.count import count
from kappa.folds.kinds.distinct import count_distinct
from kappa.folds.kinds.extremes import max_, min_
from kappa.folds.kinds.picked import first, latest
from kappa.folds.kinds.quantile import kll
from kappa.folds.kinds.set import set_
from kappa.folds.kinds.sketches import hll, theta
from kappa.folds.kinds.sum import sum_
from kappa.folds.kinds.top import top_k
from kappa.formats.avro_events import Avro
from kappa.formats.csv_events import Csv
from kappa.formats.debezium.changes import Debezium
from kappa.formats.json_events import Json
from kappa.formats.pinned import Subject
from kappa.formats.protobuf.protobuf_events import Protobuf
from kappa.formats.text_events import Text

__all__ = [
    "Alert",
    "Avro",
    "Csv",
    "Debezium",
    "Fold",
    "Json",
    "Ordered",
    "Pipeline",
    "Protobuf",
    "Sink",
    "Subject",
    "Table",
    "Text",
    "Topic",
    "View",
    "and_",
    "avg_",
    "count",
    "count_distinct",
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
    "session",
    "set_",
    "sum_",
    "theta",
    "top_k",
    "tumble",
]
