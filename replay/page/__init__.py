"""The pages as values: each file makes what one page shows. Templates are in serving/http/page.

Values are pure where they can be. A page changes nothing: its scripts ask the API. Read in this
order:

    routes         the addresses of overview, rollouts, history; data_routes: tables, topics,
                   rejects; board_routes: boards
    answer         a page as an answer of HTTP
    overview       pipelines with their builds and health
    rollout        one rollout: stages, lag, checks, and what may be asked of it
    compared       samples of the rows in which two builds differ
    timeline       generations, rollouts and proofs, newest first
    table          one table or view; topic: one topic's newest records
    trail          how far a build was at which time: charts and rates

Boards are dashboards of the project's own (kappa/declare/board.py):

    reads          the tables that a query reads, through the views that it names
    drawn          the rows of an answer as a chart draws them
    answers        the answers of all charts of a board, over one pinned snapshot

The API over HTTP has the documents of the commands' `-o json`, and the same intents. Nothing is
decided here, and a request holds up no rollout:

    api            the addresses, and what each answers
    intent         what a client wants of rollouts: explained, then recorded
    asked_once     an intent with a key is done once, however often it is sent
"""
