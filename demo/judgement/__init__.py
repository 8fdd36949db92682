"""The judgement of the platform: by a reader, by an independent computation, by freshness.

It judges by the accounts of the producer and the reader alone, and imports nothing of the producer.
Only the reckoning and the reader query the platform; they change nothing. Read it in this order:

- verdict: errors, mixed answers and backward answers, as one reader counts them
- reader: the reader's process, `python -m demo.judgement.reader`
- oracle: the rows that each version must have, computed from the ledger in SQL
- freshness: the time from sending an event to the first answer with it
- reckoning: the results of these, in words
"""
