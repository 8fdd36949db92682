"""Tools for agents that use the Model Context Protocol: they read, plan, rehearse and stage.

An agent is an untrusted client: its queries run in the sandbox. An agent changes things only with
the commands that a user types, each in a separate process. The journal names the agent as `agent
NAME for USER`. An agent can change the serving map only by the acts that `[agents] may` lists.
Files that an agent gives run only in a confined process. Rows are marked as data, and no tool does
anything because of the content of a row. The SDK `mcp` is an extra; only server.py imports it. Read
the modules in this order:

    tools          the tools as functions: documents of what serves and means, plans, requests
    snapshot_pins  the snapshots that make answers repeatable
    docs_search    a search in the documentation
    given_files    the files of the project, together with those that an agent gives
    trial_run      a rehearsal of given files: the server's part
    trial_program  the confined program of a rehearsal
    process_guard  the program that limits and ends all processes of a rehearsal
    acts           requests of an agent, as commands in separate processes
    server         the tools as an MCP server, on stdio and over HTTP
"""

__all__ = ["server"]
