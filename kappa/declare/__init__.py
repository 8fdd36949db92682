"""The user's declarations: topics, tables, folds, pipelines, ordered steps.

A declaration is a value: it runs nothing and knows no Kafka and no Spark. A wrong one is an error
at once, with the user's file and line (kappa/base/source.py). Read it in this order:

    parts          what these are made of: kinds, files, words of errors
    topic          a topic; `log_time`: its lateness and identity; `topic_settings`: the broker's
    formats        the formats that a topic may declare
    table, view    a table and its folds, and a view; `options`: what declarations have in common
    sink, alert    the ways out of a table; `sink_format`: how a sink's rows are written
    pipeline       the function that writes tables from topics; `agreement`: what these are to it
    ordered        a fold by a step of the user's, in the order of the log
    breaker        how many records a candidate may reject
"""
