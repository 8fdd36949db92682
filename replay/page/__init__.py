"""The pages as values: each file makes the content of one page. Templates: serving/http/page.

Values are pure where possible. A page changes nothing: the scripts of a page ask the API. Read in
this order:

    routes       the addresses of all pages, and a page as a response of HTTP
    overview     pipelines with their builds and health
    rollout      one rollout: stages, lag, checks, and the actions that it allows
    code_changes  the code that changed between two builds
    samples      samples of the rows in which two builds differ
    timeline     generations, rollouts and proofs, newest first
    table        one table or view, with its files, writer and readers for `kappa tables TABLE`
    table_rows   a table's rows in pages: sorted, filtered, and counted up to a bound
    topic        one topic's records: the newest, or by offset, time or key
    drawn_graph  the lineage as a picture: the places of nodes and edges
    queries      a query of a person: the answer, its chart, and as CSV
    build_rates  the offsets of a build over time: charts and rates
    boards       dashboards of the project's own (kappa/declare/board.py), answered and drawn

The API over HTTP has the documents of the commands' `-o json`, and the same intents. No decision is
made here, and a request delays no rollout:

    api      the addresses, and the response of each
    intents  a client's intents for rollouts: explained, recorded, and done once for a key
"""

__all__ = ["api", "drawn_graph", "routes", "table"]
