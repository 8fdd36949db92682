"""The judgement of the platform: by a reader, by an independent computation, and by freshness.

The judgement uses only the records that the producer and the reader have written, and imports
nothing from the producer. Only the reckoning and the reader query the platform; neither changes
anything. Read the modules in this order:

- verdict: errors, mixed answers and backward answers, as one reader counts them
- reader: the reader's process, `python -m demo.judgement.reader`
- oracle: the rows that each version must have, computed from the ledger in SQL
- freshness: the time from sending an event to the first answer that contains the event
- reckoning: converts the results of these modules to findings for display
"""
