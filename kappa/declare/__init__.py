"""The user's declarations: topics, tables, folds, pipelines, ordered steps, boards.

A declaration is a value: it runs nothing and knows no Kafka and no Spark. A wrong one is an error
at once, with the user's file and line (kappa/base/source.py). Read it in this order:

    values/          types and values, and how they are read from text or refused
    formats/         formats of records: bytes to the fields of an event
    folds/           how the rows of one key become one value
    topic            a topic; `event`: its fields; `log_time`: its lateness and identity;
                     `topic_kind`: retained or compacted; `topic_settings`: the broker's;
                     `archived`: its archive; `joined`: the topics that have joined a pattern
    table, view      a table and its folds, and a view; `options`: what both declare; `seed`: rows
                     of a file; `expiry`: when rows are gone
    sink, alert      the ways out of a table; `sink_format`: how a sink's rows are written
    pipeline         the function that writes tables from topics; `agreement`: what these are to
                     the function; `shapes`: that it reads by name, and writes a list
    ordered          a fold by a step of the user's, in the order of the log
    windows          columns for windows of event time
    breaker          how many records a candidate may reject
    board            a dashboard of the project's own; `board_files`: those of its folder
    described        how errors name what was given instead
    named_files      the files that declarations name
"""
