"""Topics by hand: what a topic is, who uses it, its records, and changes of it.

Kafka is asked by kappa/kafka alone. Nothing here is part of a build or of the journal. Read it in
this order:

- users.py: the pipelines that read a topic, and the sinks that send it.
- describe.py: a topic as it is, beside its declaration.
- lag.py: how far each build has folded each partition.
- join.py: which topics join a pattern.
- alter.py: the steps of a change, and what refuses it.
- range.py: which records of a topic are meant.
- tail.py: a record as people read it, decoded by the topic's declaration.
- export.py: records to a file and back.
"""
