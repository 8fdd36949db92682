"""Tools for agents that use the Model Context Protocol: they read, plan, rehearse and stage.

An agent is an untrusted client: its queries run in the sandbox. An agent makes changes only through
the commands that a user types, each in a separate process. The journal names the agent as `agent
NAME for USER`. An agent can change the serving map only by the acts that `[agents] may` lists.
Files that an agent gives run only in a confined process. Rows are marked as data, and no tool does
anything because of the content of a row. The SDK `mcp` is an extra; only server.py imports it. Read
the modules in this order:

    tools          the tools as functions: they describe tables, plan changes, and pass requests on
    snapshot_pins  the snapshots that make answers repeatable
    docs_search    a search in the documentation
    given_files    the files of the project, together with the files that an agent gives
    trial_run      prepares a rehearsal of given files, and reads its answer
    trial_program  the confined program that runs the rehearsal
    process_guard  the program that limits and ends all processes of a rehearsal
    acts           requests of an agent, as commands in separate processes
    server         the tools as an MCP server, on stdio and over HTTP
"""

__all__ = ["server"]
