"""The command `kappa mcp`: a server for an agent, on stdin and stdout."""

from __future__ import annotations

import typer

from kappa.commands.terminal.options import here_of


def mcp(context: typer.Context) -> None:
    """Serve an agent that speaks the Model Context Protocol, on stdin and stdout.

    The agent reads tables, plans changes and rehearses them. It asks for your yes before anything
    serves: agents.may in kappa.toml lists the acts that need no yes. It needs kappa[mcp].
    """
    from kappa.agents.server import open_desk, run_on_stdio

    with open_desk(here_of(context)) as desk:
        run_on_stdio(desk)
