"""Agents that speak the Model Context Protocol: they read, plan, rehearse and stage.

An agent reads like a stranger: its queries run in the sandbox. An agent changes things by the
commands that a person types, each in a separate process. The journal names it `agent NAME for
USER`. The serving map moves only by the acts that `[agents] may` lists. Files that an agent gives
run only in a confined process. Rows are data, and are marked so: no tool does anything because of
what a row says. The SDK `mcp` is an extra; only server.py imports it. Read the modules in this
order:

    desk         the tools as functions: documents of what serves and means, plans, requests
    pinned       the snapshots that answers can be repeated by
    docs_search  a search in the documentation
    given_files  the files of the project, with those that an agent gives
    rehearsal    a rehearsal of given files: the server's side
    rehearsed    the confined program of a rehearsal
    keeper       the program that ends and bounds all processes of a rehearsal
    acts         requests of an agent, as commands in a process of their own
    server       the tools as an MCP server, on stdio and over HTTP
"""

__all__ = ["server"]
