"""Valid records, and their meaning in their partition. Pure: no Kafka, no Spark.

Read it in this order:

    record       the one definition of validity, for every path that decodes
    keys         the Kafka key: the key column's value
    lateness     records that are too late
    identity     records that are duplicates
    redrive      records that stand for a rejected one
    tombstones   how long a deletion can be heard of
"""
