"""The names that a pipeline's file imports from `kappa`."""

from kappa.declare.alert import Alert
from kappa.declare.folds.average import avg_
from kappa.declare.folds.booleans import and_, or_
from kappa.declare.folds.count import count
from kappa.declare.folds.distinct import count_distinct
from kappa.declare.folds.extremes import max_, min_
from kappa.declare.folds.first_latest import first, latest
from kappa.declare.folds.fold import Fold
from kappa.declare.folds.quantile import kll
from kappa.declare.folds.sample import sample
from kappa.declare.folds.set import set_
from kappa.declare.folds.sketches import hll, theta
from kappa.declare.folds.sum import sum_
from kappa.declare.folds.top import top_k
from kappa.declare.formats.avro_events import Avro
from kappa.declare.formats.csv_events import Csv
from kappa.declare.formats.debezium_events import Debezium
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.protobuf_events import Protobuf
from kappa.declare.formats.registry_schemas import Subject
from kappa.declare.formats.text_events import Text
from kappa.declare.ordered_fold import Ordered, ordered
from kappa.declare.pipeline import Pipeline, pipeline
from kappa.declare.sequence import absent, follows, sequence
from kappa.declare.sink import Sink
from kappa.declare.table import Table
from kappa.declare.topic import Topic
from kappa.declare.view import View
from kappa.declare.windows import hop, session, sessions, tumble

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
    "absent",
    "and_",
    "avg_",
    "count",
    "count_distinct",
    "first",
    "follows",
    "hll",
    "hop",
    "kll",
    "latest",
    "max_",
    "min_",
    "or_",
    "ordered",
    "pipeline",
    "sample",
    "sequence",
    "session",
    "sessions",
    "set_",
    "sum_",
    "theta",
    "top_k",
    "tumble",
]
