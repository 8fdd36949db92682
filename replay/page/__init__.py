"""The pages as values: each file makes what one page shows. Templates are in serving/page.

Values are pure where they can be. A page changes nothing: its scripts ask the API.

Read in this order:
routes       the addresses of overview, rollouts, history; data_routes: tables, topics, rejects;
             board_routes: boards
answer       a page as an answer of HTTP
overview     pipelines with their builds and health
rollout      one rollout: stages, lag, checks, and what may be asked of it
compared     samples of the rows in which two builds differ
timeline     generations, rollouts and proofs, newest first
table        one table or view; topic: one topic's newest records
trail        how far a build was at which time: charts and rates
"""
