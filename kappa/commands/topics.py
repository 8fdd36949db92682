"""Commands on topics: join, create, list, describe, alter, delete, lag."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import UsageError, did_you_mean
from kappa.base.units import count_of
from kappa.commands import records
from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.options import As, Yes, here_of
from kappa.commands.terminal.output import ask_consent, print_listing, readable_topics, say
from kappa.serving.query.render import Form, Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.declare.topic import Topic
    from kappa.replay.status.context import ProjectContext
    from kappa.replay.status.topics.describe import TopicDescription, TopicUser


app = Commands(text="List, create, change, read, copy and delete topics.")
app.command("tail")(records.tail)
app.command("export")(records.export)
app.command("import")(records.import_)


@app.command("join")
def join_topics(
    context: typer.Context,
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATTERNS]...", help="all declared patterns, if none is given"),
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option("--leave", metavar="TOPIC", help="remove this topic; repeat for more"),
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Write the topics that match the declared patterns now to a file of the project.

    The file is part of the project, as its code is. If a topic joins a pattern, it is new in each
    pipeline that reads by the pattern, so the next deploy of the pipeline replays. A joined topic
    stays until you remove it with --leave TOPIC.
    """
    from kappa.code.project import load_pipelines
    from kappa.declare.topic_patterns import before_joining, joined_path, put_joined
    from kappa.replay.status.topics.join import join_topics
    from kappa.state.build import read_birth

    here = here_of(context)
    with before_joining():
        pipelines = load_pipelines(here.settings.project)
    declared = {each.name: each for every in pipelines.values() for each in every.patterns}
    for pattern in patterns or ():
        if pattern not in declared:
            raise UsageError(
                f"the project declares no topics by the pattern {pattern}",
                hint=f"it declares {', '.join(declared) or 'none by a pattern'}",
            )
    chosen = patterns or list(declared)
    if not chosen:
        raise UsageError(
            "the project declares no topics by a pattern",
            hint=r'declare them: Topic(pattern=r"logs\..*", event="...")',
        )
    if leave and len(chosen) > 1:
        raise UsageError("--leave is for one pattern", hint="name the pattern, too")
    births = [read_birth(here.store, build) for build in here.state().wanted_builds()]
    sinks = {sink.name for every in pipelines.values() for sink in every.sinks}
    sinks |= {sink.topic for birth in births for sink in birth.sinks}
    there = here.log().topics()
    found = [join_topics(declared[pattern], there, sinks, leave or ()) for pattern in chosen]
    for each in found:
        put_joined(here.settings.project, each.topics)
        say(
            f"{joined_path(each.topics.pattern)} lists {count_of(len(each.topics.topics), 'topic')}"
        )
    rows = tuple(
        (
            each.topics.pattern,
            name,
            next((one.partitions for one in each.topics.topics if one.name == name), None),
            str(state),
        )
        for each in found
        for name, state in each.became.items()
    )
    print_listing(output, Listing(("pattern", "topic", "partitions", "state"), rows))


@app.command("create")
def create_topics(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPICS]...", help="all declared topics, if none is named"),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            help="create topics that no pipeline declares, with so many partitions",
        ),
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Create the declared topics on the broker; existing topics stay as they are.

    The command prints `made` or `was there` as the state of each topic. With --partitions, the
    command creates topics that no pipeline declares, for example for an import.
    """
    here = here_of(context)
    if partitions is not None:
        _create_undeclared(here, names or (), partitions, output)
        return
    declared = [_declared(here, name) for name in names or here.topics]
    log = here.log()
    by_brokers_time = {
        topic.name
        for pipeline in here.loadable.pipelines.values()
        for topic in pipeline.topics
        if pipeline.needs_brokers_time(topic)
    }
    before = {*log.topics()}
    found = [
        (topic, log.create(topic, brokers_time=topic.name in by_brokers_time)) for topic in declared
    ]
    rows = tuple(
        (
            *(topic.name, "was there" if topic.name in before else "made"),
            *(topic.kind, facts.partitions, facts.id),
        )
        for topic, facts in found
    )
    print_listing(output, Listing(("topic", "state", "kind", "partitions", "id"), rows))


@app.command("list")
def list_topics(context: typer.Context, output: As = Form.TABLE) -> None:
    """List the topics on the broker, and declared topics that do not exist yet."""
    from kappa.replay.status.listings import topics_listing

    here = here_of(context)
    log = here.log()
    print_listing(output, topics_listing(log, readable_topics(here)))


@app.command("describe")
def describe_topic(
    context: typer.Context, topic: records.OneTopic, output: As = Form.TABLE
) -> None:
    """Show one topic: declared and actual settings, partitions, and the pipelines that use it."""
    from kappa.replay.status.topics import describe

    found = _described(here_of(context), topic)
    print_listing(
        output,
        describe.description_listing(found),
        document=describe.description_document(found),
        heading=describe.description_text(found),
    )


@app.command("alter")
def alter_topic(
    context: typer.Context,
    topic: records.OneTopic,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="a setting; repeat for more"),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="the number of partitions afterwards")
    ] = None,
    yes: Yes = False,
) -> None:
    """Change a topic's settings or partitions to the given values, or to the declared values."""
    from kappa.kafka.client import set_config
    from kappa.replay.status.topics.alter import change_of, change_text, parse_settings

    here = here_of(context)
    found = _described(here, topic)
    change = change_of(found, parse_settings(settings or ()), partitions)
    if not change:
        say(f"topic {topic} is so already")
        return
    say(change_text(found, change).rstrip())
    count = () if partitions is None else ("--partitions", str(partitions))
    ask_consent(
        _typed("alter", topic, "--set", settings, *count),
        yes=yes,
        what=f"this changes topic {topic}",
        undone=f"topic {topic} was not changed",
    )
    log = here.log()
    if change.config:
        set_config(log, topic, change.config)
    if change.partitions is not None:
        log.add_partitions(topic, change.partitions)


@app.command("delete")
def delete_topic(
    context: typer.Context,
    topic: records.OneTopic,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="PIPELINE",
            help="delete it although this pipeline uses it; repeat for more",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete a topic with all its records.

    If a pipeline uses the topic, the option --allow with the name of this pipeline is needed.
    """
    from kappa.replay.status.topics.describe import refuse_used

    here = here_of(context)
    log = here.log()
    log.must_have(topic)
    users = _users(here, topic)
    refuse_used(topic, users, allow or ())
    offsets = log.end([topic]).distance(log.beginning([topic]))
    say(f"topic {topic}: {offsets:,} offsets would be deleted, and cannot be restored")
    for each in users:
        say(f"  {each}")
    ask_consent(
        _typed("delete", topic, "--allow", allow),
        yes=yes,
        what=f"this deletes topic {topic}",
        undone=f"topic {topic} was not deleted",
    )
    log.delete(topic)
    say(f"topic {topic} is deleted")


def _typed(
    command: str, topic: str, option: str, values: Sequence[str] | None, *others: str
) -> str:
    """Returns a `kappa topics` command as a user would type it.

    `option` is repeated before each of the `values`, and `others` are further words of the command.
    """
    given = (each for value in values or () for each in (option, value))
    return shlex.join(("topics", command, topic, *given, *others))


@app.command("lag")
def lag(
    context: typer.Context,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPICS]...", help="all, if none is named")
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Show, for each build and partition, the offset folded so far and the lag behind the log."""
    from kappa.replay.status.status import observe_status
    from kappa.replay.status.status_text import lag_listing

    here = here_of(context)
    log = here.log()
    for name in topics or ():
        log.must_have(name)
    status = observe_status(here.store, log)
    for why in (*status.damaged, status.broker_error):
        if why:
            say(why)
    print_listing(output, lag_listing(status, topics or ()))


def _described(here: ProjectContext, topic: str) -> TopicDescription:
    from kappa.kafka.broker.broker import partition_bytes
    from kappa.replay.status.topics.describe import describe_topic

    declared = here.declared_topic(topic)
    brokers_time = declared is not None and any(
        pipeline.needs_brokers_time(declared)
        for pipeline in here.loadable.pipelines.values()
        if declared in pipeline.topics
    )
    sizes = partition_bytes(here.store.local.folder, [topic]) if here.settings.runs_broker else {}
    return describe_topic(
        here.log(),
        topic,
        declared,
        _users(here, topic),
        brokers_time=brokers_time,
        sizes=sizes.get(topic, {}),
    )


def _users(here: ProjectContext, topic: str) -> tuple[TopicUser, ...]:
    from kappa.replay.status.topics.describe import users_of
    from kappa.state.build import read_birth

    state = here.state()
    births = {build: read_birth(here.store, build) for build in state.wanted_builds()}
    return users_of(topic, state, births)


def _create_undeclared(
    here: ProjectContext, names: Sequence[str], partitions: int, output: Form
) -> None:
    if not names:
        raise UsageError(
            "--partitions is for named topics",
            hint="type: kappa topics create NAME --partitions N; declared topics need no number",
        )
    for name in names:
        if name in here.topics:
            raise UsageError(
                f"topic {name} is declared, and its declaration has its number of partitions",
                hint=f"kappa topics create {name}",
            )
    log = here.log()
    made = [log.create_undeclared(name, partitions) for name in names]
    rows = tuple((each.name, None, each.partitions, each.id) for each in made)
    print_listing(output, Listing(("topic", "kind", "partitions", "id"), rows, is_report=True))


def _declared(here: ProjectContext, name: str) -> Topic:
    found = here.declared_topic(name)
    if found is None:
        known = here.topics
        raise UsageError(
            f"the project declares no topic {name}",
            hint=did_you_mean(name, known) or f"it declares {', '.join(known) or 'none'}",
        )
    return found
