"""Tools with which AI agents read tables, and plan, rehearse and stage changes.

The agents use the Model Context Protocol (MCP). An agent is an untrusted client: its queries run in
the sandbox. An agent changes a project only through commands that a user could also type. Each
command runs in a separate process, and the journal names the agent as `agent NAME for USER`. An
agent can change the serving map only by the acts that `[agents] may` lists. The Python files that
an agent sends run only in a confined process. Rows are marked as data, and no tool obeys
instructions in a row. The SDK `mcp` is an extra; only server.py imports it. Read the modules in
this order:

    tools          the tools as functions: they describe tables, plan changes, and pass requests on
    snapshot_pins  the pinned snapshots, with which an agent can repeat a query on the same rows
    docs_search    a search in the documentation
    given_files    the files of the project, together with the files that an agent sends
    trial_run      prepares a rehearsal of an agent's files, and reads its answer
    trial_program  the confined program that runs the rehearsal
    process_guard  the program that limits and ends all processes of a rehearsal
    acts           requests of an agent, as commands in separate processes
    server         the tools as an MCP server, on stdio and over HTTP
"""

__all__ = ["server"]
