"""The user's declarations: topics, tables, folds, pipelines, ordered steps.

A declaration is a value: it runs nothing and knows no Kafka and no Spark. A wrong one is an error
at once, with the user's file and line (kappa/base/source.py). Read it in this order:

    topic          a topic; `topic_kind`, `event`, `log_time`: its kind, its event, lateness and
                   identity; `schema_files`: the schema files that events name
    table, view    a table and its folds, and a view; `options`: what both have in common
    expiry         when rows of a table are gone
    pipeline       the function that writes tables from topics
    windows        columns for windows of event time
    ordered        a fold by a step of the user's, in the order of the log
    described      how errors name what was given instead
    breaker        how many records a candidate may reject
"""
