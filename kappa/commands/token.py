"""Commands on the tokens of network clients: add, list, remove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.sections import Role
from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.options import As, here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.serving.query.render import Form, Listing

if TYPE_CHECKING:
    from kappa.replay.status.context import ProjectContext

app = Commands(text="Make, list and remove the tokens of clients that ask over the network.")


@app.command("add")
def add_token(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="the client that gets it, such as grafana")
    ],
    role: Annotated[
        list[Role], typer.Option("--role", help="the role of the client; repeat for more")
    ],
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", help="a table that the client may read, and no other; repeat for more"
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="a topic to which the client may send, and no other; repeat for more"
        ),
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Make a token, and print it. It cannot be printed again, because only its hash is kept.

    The token is valid at once, without a restart. As soon as a token exists, each request needs a
    token. Roles: read, collect, stage (plan, rehearse, stage, verify), operate (promote, undo,
    retire, pause, redrive), admin. Stage, operate and admin each include the roles before them,
    except collect, which only admin includes.
    """
    from kappa.serving.access.accounts import token_file
    from kappa.state.journal.journal import process_user

    here = here_of(context)
    file = token_file(here.settings, here.store.local.folder)
    first = not file.tokens() and not here.settings.serve.token
    token = file.add_token(name, role, table or (), topic or (), made_by=process_user())
    if output is Form.TABLE:
        # Alone on the output, for a script; the rest is told beside it.
        typer.echo(token)
    else:
        roles = ", ".join(role)
        print_listing(output, Listing(("name", "roles", "token"), ((name, roles, token),)))
    say(f"this is the token of {name}, and it is not shown again: keep it now")
    if first and Role.COLLECT not in role:
        say("it is the first: from now on each request to HTTP needs a token, the page's too")
    for each in _unknown_tables(here, table or ()):
        say(each)


def _unknown_tables(here: ProjectContext, tables: Sequence[str]) -> Iterator[str]:
    """Yields a warning for each table that is neither declared nor served.

    A token may name such a table, because the table may be declared later.
    """
    if not tables:
        return
    from kappa.base.errors import near_or_all
    from kappa.code.names import declared_names
    from kappa.declare.options import REJECTS
    from kappa.state.build import read_birth

    declared = declared_names(here.settings.project)
    serving = here.state().serving
    births = [read_birth(here.store, build) for build in serving.values()]
    known = {name for kind, name in declared if kind == "table"}
    known |= {each.name for birth in births for each in birth.tables if each.name != REJECTS}
    known |= {view for birth in births for view in birth.views}
    pipelines = {name for kind, name in declared if kind == "pipeline"} | {*serving}
    known |= {f"{pipeline}.{REJECTS}" for pipeline in pipelines}
    for name in tables:
        if name not in known:
            near = near_or_all(name, sorted(known))
            yield f"warning: no table {name} is declared or served yet: {near}"


@app.command("list")
def list_tokens(context: typer.Context, output: As = Form.TABLE) -> None:
    """List the tokens: what each may do, who made it, and when."""
    from kappa.serving.access.accounts import Accounts
    from kappa.serving.access.roles import Act, may

    here = here_of(context)
    accounts = Accounts.of(here.settings, here.store.local.folder)
    rows = tuple(
        (
            each.name,
            ", ".join(each.roles),
            ", ".join(each.tables) or ("all" if may(each.identity, Act.READ) else None),
            ", ".join(each.topics) or ("all" if may(each.identity, Act.COLLECT) else None),
            each.made_at or None,
            each.made_by or "the environment",
        )
        for each in accounts.named_tokens()
    )
    print_listing(
        output,
        Listing(
            ("token", "roles", "tables", "topics", "made_at", "made_by"),
            rows,
            is_report=True,
            times=frozenset({"made_at"}),
            empty="there is no token by name yet: kappa token add NAME --role read",
        ),
    )


@app.command("remove")
def remove_token(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOKEN", help="the name of the token")],
) -> None:
    """Remove a token: requests with the token are refused from now on, without a restart."""
    from kappa.serving.access.accounts import token_file

    here = here_of(context)
    token_file(here.settings, here.store.local.folder).remove_token(name)
    say(f"the token of {name} is removed")
