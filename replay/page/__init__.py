"""Computes the data that the pages show; each module computes the data of one page.

The templates are in serving/http/page. The functions are pure where possible. To show a page
changes nothing. If a person requests a change on a page, the page's script sends the request to the
API. Read the modules in this order:

    routes        the addresses of all pages, and a page as an HTTP response
    overview      pipelines with their builds and health
    alerts        notices and alerts; the most urgent come first
    rollout       one rollout: stages, lag, checks, and possible actions
    code_changes  the code that changed between two builds
    samples       samples of the rows in which two builds differ
    timeline      generations, rollouts and proofs, newest first
    table         one table or view, and its files, writer and readers for `kappa tables TABLE`
    table_rows    the rows of a table in pages: sorted, filtered, and counted up to a limit
    topic         records of one topic: the newest, or from an offset or time, or with a key
    graph_layout  the positions of the lineage's nodes and edges in a picture
    graph_states  the states of the nodes in this picture
    queries       the answer to a typed query, as rows, as a chart, and as CSV
    first_steps   the commands to type in a new project, and a sample of a board
    build_rates   the offsets of a build over time, for charts and rates
    boards        the charts of the project's boards (dashboards)

The HTTP API returns the JSON documents that the commands print with `-o json`. It accepts intents:
requests to promote, undo, abandon, verify, retire, pause or resume, as the commands do. The modules
of the API make no decisions, and a request delays no rollout:

    api           the addresses, and the response of each
    intents       explains and records a client's intents, once per Idempotency-Key
"""

__all__ = ["api", "graph_layout", "routes", "table"]
