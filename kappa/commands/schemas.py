"""Commands on schemas: the subjects of the registry, and the versions that the project pins."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import ExitCode
from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.options import As, here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.serving.query.render import Form, Listing

if TYPE_CHECKING:
    from kappa.kafka.registry import RegistryClient
    from kappa.replay.status.context import ProjectContext

app = Commands(text="List, show, pin and check subjects of the schema registry.")
_Name = Annotated[str, typer.Argument(metavar="SUBJECT", help="its subject")]
_Version = Annotated[
    int | None, typer.Option("--version", min=1, help="the version; default: the newest")
]


@app.command("list")
def list_schemas(context: typer.Context, output: As = Form.TABLE) -> None:
    """List the subjects of the registry, with their newest and pinned versions."""
    from kappa.declare.formats.registry_schemas import pinned_in

    here = here_of(context)
    client = _client(here)
    pinned = pinned_in(here.settings.project)
    newest = [client.pin(subject) for subject in client.subjects()]
    rows = tuple(
        (each.subject, each.schema.kind, each.version, each.id, _pinned(pinned.get(each.subject)))
        for each in newest
    )
    print_listing(output, Listing(("subject", "type", "newest", "id", "pinned"), rows))


@app.command("show")
def show_schema(context: typer.Context, subject: _Name, version: _Version = None) -> None:
    """Print the text of a subject's schema, as the registry has it."""
    found = _client(here_of(context)).pin(subject, version)
    sys.stdout.write(f"{found.schema.text}\n")


@app.command("pin")
def pin_schema(context: typer.Context, subject: _Name, version: _Version = None) -> None:
    """Pin a version of a subject: write it to a file of the project, which declarations read.

    The file is part of the project, as its code is. If you pin another version of the subject, the
    version of each pipeline that reads the subject changes.
    """
    from kappa.declare.formats.registry_schemas import pin_path, put_pin

    here = here_of(context)
    found = _client(here).pin(subject, version)
    put_pin(here.settings.project, found)
    say(f"{pin_path(subject)} has version {found.version} of subject {subject}, id {found.id}")


@app.command("check")
def check_schemas(context: typer.Context, output: As = Form.TABLE) -> None:
    """Ask the registry whether the project's declarations are compatible with its subjects.

    Exit code 1 if a declaration is not compatible.
    """
    from kappa.replay.status.schemas import checked_topics

    here = here_of(context)
    found = [*checked_topics(_client(here), here.topics.values())]
    rows = tuple(
        (each.topic, each.subject, each.declared, each.newest, each.verdict) for each in found
    )
    print_listing(output, Listing(("topic", "subject", "declared", "newest", "verdict"), rows))
    if not all(each.is_compatible for each in found):
        raise typer.Exit(ExitCode.FAILED)


def _client(here: ProjectContext) -> RegistryClient:
    from kappa.kafka.registry import RegistryClient

    return RegistryClient(here.settings.registry)


def _pinned(version: int | None) -> str:
    return "" if version is None else str(version)
