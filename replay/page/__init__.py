"""The content of all pages as values: each module makes the content of one page.

The templates are in serving/http/page. The functions are pure where possible. A page changes
nothing: the scripts of a page send requests to the API. Read the modules in this order:

    routes        the addresses of all pages, and a page as an HTTP response
    overview      pipelines with their builds and health
    alerts        notices and alerts, those that need a person first
    rollout       one rollout: stages, lag, checks, and the actions that it allows
    code_changes  the code that changed between two builds
    samples       samples of the rows in which two builds differ
    timeline      generations, rollouts and proofs, newest first
    table         one table or view, and its files, writer and readers for `kappa tables TABLE`
    table_rows    a table's rows in pages: sorted, filtered, and counted up to a limit
    topic         records of one topic: the newest, or from an offset or time, or with a key
    graph_layout  the lineage as a picture: the places of nodes and edges
    graph_states  the states of the nodes in this picture
    queries       the query that a person types: its answer as rows, as a chart, and as CSV
    build_rates   the offsets of a build over time, for charts and rates
    boards        the project's own dashboards (kappa/declare/board.py), answered and drawn

The HTTP API returns the documents of the commands' `-o json`, and accepts the same intents. Its
modules make no decision, and a request delays no rollout:

    api           the addresses, and the response of each
    intents       a client's intents for rollouts: explained, recorded, and done once per key
"""

__all__ = ["api", "graph_layout", "routes", "table"]
