"""Commands that work on topics: description, users and records of a topic, and changes.

Only kappa/kafka sends requests to Kafka. Nothing here is part of a build or of the journal. Read in
this order:

 describe      a topic on the broker, next to its declaration, with its users
 join          the topics that join a pattern
 alter         the steps of a change, and the reasons to refuse the change
 records       records of a topic: a range, decoded, as text, and in files
 topic_growth  the growth rates of topics
 details       the size, the retention and the newest time of topics, for a list
"""

__all__ = ["alter", "describe", "details", "join", "records", "topic_growth"]
