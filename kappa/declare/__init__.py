"""The user's declarations: topics, tables, folds, pipelines, ordered steps, boards.

A declaration is a value: it runs nothing, and uses neither Kafka nor Spark. If a declaration is
wrong, its constructor raises an error with the user's file and line (kappa/base/source.py). Read
the package in this order:

    values/          types and values, and how values are parsed from text or rejected
    formats/         formats of records: from bytes to the fields of an event
    folds/           how the rows of one key become one value
    options          options that several declarations share, and how errors show wrong values
    topic            a topic and its event; `topic_options`: its kind, archive, lateness and
                     identity; `topic_patterns`: the topics that have joined a pattern
    table, view      a table, its folds and its expiry, and a view; `seed`: rows of a file
    sink, alert      the outlets of a table: a topic with its rows, and messages about changes
    ordered_fold     a fold by the user's step, in the order of the topic's log
    sequence         an ordered fold that finds patterns of rows
    pipeline         the function that computes the rows of tables from topics, and the checks
                     that the declarations of a pipeline fit together
    windows          columns for windows of event time
    reject_limit     the number of records that a candidate may reject
    board            a dashboard of the project
    project_files    the files that declarations name
    public_names     the names that a pipeline's file imports from `kappa`
"""

__all__ = [
    "alert",
    "board",
    "options",
    "ordered_fold",
    "pipeline",
    "project_files",
    "public_names",
    "reject_limit",
    "seed",
    "sink",
    "table",
    "topic",
    "topic_options",
    "topic_patterns",
    "view",
]
