"""Topics by hand: a topic's description, its users, its records, and changes of a topic.

Only kappa/kafka asks Kafka. No module here is part of a build or of the journal. Read in this
order:

    describe  a topic on the broker, beside its declaration, with its users
    join      the topics that join a pattern
    alter     the steps of a change, and the reasons to refuse the change
    records   a topic's records: their range, decoded, as text, and in files
"""
