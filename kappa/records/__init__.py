"""What a valid record is, and what it means in its partition. Pure: no Kafka, no Spark.

Read it in this order:

    record       what is valid: the one definition, for every path that decodes
    lateness     records that are too late
    identity     records that are duplicates
    redrive      records that stand for a rejected one
    tombstones   how long a deletion can be heard of
"""
