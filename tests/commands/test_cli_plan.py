"""Laws of plan, deploy and replay on the command line: refusals, and their exit codes.

Each refusal is also tested with the option that allows it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from typing_in import Ended, Kappa, pretend_up, typist

from kappa.code.fingerprint import compute_fingerprint, declared_rows_version
from kappa.code.project import load_project
from kappa.kafka.client import TopicFacts
from kappa.kafka.reader import Record
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.stage import stage_plan
from kappa.replay.rollout.state import State
from kappa.replay.status.context import ProjectContext
from kappa.state.build import read_birth
from kappa.state.journal.events import CaughtUp, Check, Event, Held, Receipt, Served, Verified
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import Store

PIPELINE = """
from kappa import Table, Topic, count, pipeline
import time

HITS = Topic("web.hits", key="page", event="page string not null, ms bigint")
LIMIT = 15

@pipeline(reads={"hits": HITS}, writes=[Table("page_hits", keys=("page",), fold={"hits": count()})])
def web(hits):
    # A remark.
    return {"page_hits": hits.where(hits.ms > LIMIT)}
"""
NEVER_ENDS = ("--timeout", "0")
READS_OUTSIDE = "view v cannot be read: the query cannot be run: read_text looks outside"
# Each declaration is wrong by itself, but for the last one.
MISTAKES = """from kappa import Table, Topic, View, count, pipeline

HITS = Topic("bad.hits", key="page", event="page string, n intt")
OTHER = Topic("good.hits", key="page", event="page string")


SUMS = Table("sums", fold={"n": count()})
SLOW = Table("slow", keys=("page",))


@pipeline(
    reads={"hits": OTHER},
    writes=[
        Table("seconds", fold={"n": count()}),
        Table("minutes", keys=("page",), fold={"n": count()}),
    ],
)
def bad(hits):
    return {}
"""


@dataclass
class Log:
    """A broker's client that knows one topic."""

    known: TopicFacts = field(default_factory=lambda: TopicFacts("web.hits", "id-1", 1))
    begins: int = 0
    ends: int = 7
    settings: dict[str, str] = field(default_factory=dict)
    up: int = 1
    other: TopicFacts | None = None

    def wait_until_ready(self, _patience_seconds: float) -> bool:
        return True

    def brokers(self) -> int:
        return self.up

    def topics(self) -> dict[str, TopicFacts]:
        return {each.name: each for each in (self.known, self.other) if each is not None}

    def facts(self, name: str) -> TopicFacts | None:
        return self.topics().get(name)

    def beginning(self, topics: Iterable[str]) -> Offsets:
        return self._everywhere(topics, self.begins)

    def end(self, topics: Iterable[str]) -> Offsets:
        return self._everywhere(topics, self.ends)

    def at_time(self, topics: Iterable[str], _timestamp_ms: int) -> Offsets:
        return self._everywhere(topics, self.begins)

    def records(self, _topics: Iterable[str], _start: Offsets, _end: Offsets) -> Iterator[Record]:
        return iter(())

    def create_undeclared(self, name: str, partitions: int) -> TopicFacts:
        self.other = TopicFacts(name, "id-2", partitions)
        return self.other

    def config(self, _name: str) -> dict[str, str]:
        return self.settings

    def _everywhere(self, topics: Iterable[str], offset: int) -> Offsets:
        return Offsets(
            {name: dict.fromkeys(range(self.known.partitions), offset) for name in topics}
        )


class Project:
    """A project whose supervisor is up but does nothing, with a broker that knows its topic."""

    def __init__(self, folder: Path, type_in: Kappa) -> None:
        self.folder = folder
        self.kappa = type_in
        self.log = Log()
        self.store = Store(folder / ".kappa")
        self.write(PIPELINE)
        pretend_up(self.store)

    def write(self, text: str) -> None:
        """Writes the pipeline's file, and the columns that a description in a JVM would find."""
        self.put("pipelines/web.py", text)
        self.describe("web")

    def put(self, name: str, text: str) -> None:
        """Writes a file of the project."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def describe(self, name: str) -> None:
        """Stores the columns of a pipeline's table, as a description of its rows would."""
        project = load_project(self.folder)
        place, found = project.places[name], project.pipelines[name]
        parts = compute_fingerprint(
            found, place.module, place.attribute, project.sources.find
        ).parts
        columns = (("page", "string"), ("ms", "bigint"))
        self.store.put_json(
            f"cache/describe/{declared_rows_version(found, parts)}.json",
            {
                "format": 2,
                "tables": {found.function_tables[0].name: columns},
                "changing": (),
                "lineage": {},
            },
        )

    def add_pipeline(self, name: str, *, topic: str = "web.hits", more: str = "") -> None:
        """Adds another pipeline of the same shape, with its own table."""
        text = (
            PIPELINE.replace("page_hits", f"{name}_hits")
            .replace("def web(", f"def {name}(")
            .replace('"web.hits"', f'"{topic}"')
            .replace("LIMIT = 15", f"LIMIT = 15{more}")
        )
        self.put(f"pipelines/{name}.py", text)
        self.describe(name)

    def edit(self, old: str, new: str) -> None:
        assert old in PIPELINE
        self.write(PIPELINE.replace(old, new))

    @property
    def state(self) -> State:
        return fold_records(Journal(self.store).after(0))

    @property
    def rollout(self) -> Rollout:
        return self.state.rollouts[-1]

    def bring_on(self) -> None:
        """Advances the newest rollout until it needs a yes, as the controller would."""
        here, check = Offsets({"web.hits": {0: 7}}), Check("page_hits", "hits > 0", 3, 0)
        if self.rollout.phase is Phase.REPLAYING:
            self.append(CaughtUp(self.rollout.id, here))
            self.append(Verified(self.rollout.id, "passed", here, (check,)))
        rollout, state = self.rollout, self.state
        if rollout.active and rollout.approved:
            live = state.serving.get("web")
            if live is not None:
                self.append(Held(rollout.id, live, 1))
            before = None if live is None else here
            receipt = Receipt(
                "web", rollout.build, rollout.version, here, live, before, first=live is None
            )
            self.append(Served(rollout.id, state.generation + 1, {"web": rollout.build}, receipt))

    def append(self, event: Event) -> None:
        assert Journal(self.store).append(self.state.last + 1, event) is not None


@pytest.fixture
def web(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Project:
    monkeypatch.chdir(project)
    # That takes a JVM: tests/replay/rollout/test_law.py has one.
    monkeypatch.setenv("KAPPA__VERIFY__LAW_RECORDS", "0")
    made = Project(project, typist(capsys, monkeypatch))
    monkeypatch.setattr(ProjectContext, "log", lambda _: made.log)
    return made


@pytest.fixture
def served(web: Project) -> Project:
    """Makes the project's first version serve."""
    web.kappa("deploy", "--yes", *NEVER_ENDS).has(5)
    web.bring_on()
    return web


def test_a_plan_tells_changes_by_its_exit_code_where_it_is_asked_to(web: Project) -> None:
    web.kappa("plan").has(0)
    web.kappa("plan", "--detailed-exitcode").has(3)


@pytest.mark.parametrize(
    "remark", ["    # A remark.", '    """Hits."""\n\n    # Another\n    # remark.']
)
def test_what_serves_and_prose_are_no_change(served: Project, remark: str) -> None:
    served.edit("    # A remark.", remark)

    rollout = served.rollout
    same = f"web: unchanged (version {rollout.version}, build {rollout.build})\nnothing to deploy\n"
    assert served.kappa("plan", "--detailed-exitcode") == Ended(0, same, "")


def test_a_change_is_shown_with_its_diff_and_its_cost(served: Project) -> None:
    served.edit("LIMIT = 15", "LIMIT = 30  # half an hour")
    planned = served.kappa("plan")

    assert "  value LIMIT in pipelines/web.py:\n    -LIMIT = 15\n    +LIMIT = 30\n" in planned.out
    assert "  cost: 7 records in 1 partition, size unknown; disk unknown" in planned.out

    document = served.kappa("plan", "-o", "json").json()
    (step,) = document["steps"]
    assert document["journal"] == 4
    partition = {"topic": "web.hits", "partition": 0, "records": 7, "bytes": None}
    found = (step["change"], step["records"], step["cost"]["partitions"])
    assert found == ("changed", 7, [partition])
    (diff,) = step["diffs"]
    assert tuple(diff.values()) == (
        "value pipelines/web.py:LIMIT",
        "value LIMIT in pipelines/web.py",
        "@@ -1 +1 @@\n-LIMIT = 15\n+LIMIT = 30\n",
    )


def test_a_changed_declaration_is_shown_from_the_birth_of_what_serves(served: Project) -> None:
    served.edit("ms bigint", "ms bigint, who string")

    assert (
        "  topic web.hits:\n      column page string not null\n"
        "      column ms bigint\n    +column who string\n"
        in served.kappa("plan").out.replace("     column", "      column")
    )


def test_a_topic_that_one_broker_could_take_along_is_refused_by_name(web: Project) -> None:
    web.log.up, web.log.known = 3, TopicFacts("web.hits", "id-1", 1, replicas=1)
    lone = "topic web.hits has one replica of each partition in a cluster of 3 brokers"
    web.put("kappa.toml", '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')

    refused = web.kappa("plan")
    assert lone in refused.out
    assert "kappa deploy web --allow 'replication:web.hits=REASON'" in refused.out
    web.kappa("doctor").has(0, f"at risk: {lone}")

    # Two of the three are away: another topic shows that they are there.
    web.log.up, web.log.other = 1, TopicFacts("other", "id-2", 1, replicas=3)
    assert lone in web.kappa("plan").out
    assert f"at risk: {lone}" in web.kappa("doctor").err

    web.kappa("plan", "--allow", "replication:web.hits=a copy is elsewhere").has(0)
    web.log.known = TopicFacts("web.hits", "id-1", 1, replicas=3)
    assert "at risk" not in web.kappa("doctor").err


def test_a_lost_beginning_is_refused_and_accepted_for_ever(web: Project) -> None:
    web.log.begins = 3

    gap = "web.hits partition 0 begins at offset 3: a replay would miss what came before"
    refused = web.kappa("deploy", "--yes").has(1, out=gap)
    assert "kappa deploy web --accept-gap" in refused.out
    assert "error: the plan of pipeline web is refused, as it says" in refused.err
    assert web.state.last == 0

    web.kappa("deploy", "--yes", "--accept-gap", *NEVER_ENDS).has(5)
    assert web.rollout.accepted == (f"gap: {gap}",)
    assert read_birth(web.store, web.rollout.build).accepted == (f"gap: {gap}",)
    assert web.kappa("history", "-o", "json").json()[0]["accepted"] == [f"gap: {gap}"]
    assert f"accepted gap: {gap}" in web.kappa("history", "-o", "csv").out


def test_what_breaks_readers_is_refused_until_it_is_allowed(served: Project) -> None:
    served.edit('fold={"hits": count()}', 'fold={"visits": count()}')

    assert "readers: column hits of table page_hits goes (breaking)" in served.kappa("plan").out
    served.kappa("deploy", "--yes").has(1, out="kappa deploy web --allow-breaking")
    served.kappa("deploy", "--yes", "--allow-breaking", *NEVER_ENDS).has(5)
    assert served.rollout.accepted == (
        "breaking: what reads the tables of web may break: column hits of table page_hits goes",
    )


def test_what_is_not_deterministic_is_refused_until_a_reason_is_given(web: Project) -> None:
    web.edit("LIMIT = 15", "LIMIT = time.time()")

    clock = "pipelines/web.py:6 uses time.time, which reads the clock"
    web.kappa("plan").has(1, out=clock)
    allow = ("--allow", "pipelines/web.py:6=a test")
    web.kappa("deploy", "--yes", *allow, *NEVER_ENDS).has(5)
    assert web.rollout.accepted == (f"{clock}: a test",)


@pytest.mark.parametrize(
    ("allow", "says"),
    [("rate", "has no reason"), ("rate=", "has no reason"), ("=why", "has no name")],
)
def test_an_allowance_has_a_name_and_a_reason(web: Project, allow: str, says: str) -> None:
    web.kappa("deploy", "--allow", allow).has(2, says)


def test_a_replay_takes_the_same_flags(served: Project) -> None:
    served.log.begins = 3

    served.kappa("replay", "web", "--yes").has(1, out="kappa replay web --accept-gap")
    served.kappa("replay", "web", "--yes", "--accept-gap", *NEVER_ENDS).has(5)


def test_a_saved_plan_is_applied_with_no_question(web: Project) -> None:
    web.log.begins = 3
    web.kappa("plan", "--out", "plan.json", "--accept-gap", "--detailed-exitcode").has(
        3, "kappa deploy --plan plan.json"
    )

    web.log.ends = 20
    web.kappa("deploy", "--plan", "plan.json", *NEVER_ENDS).has(5)
    assert len(web.rollout.accepted) == 1


@pytest.mark.parametrize("path", [".", "pipelines", "/nowhere/plan.json"])
def test_where_no_plan_can_be_saved_is_said(web: Project, path: str) -> None:
    web.kappa("plan", "--out", path).has(2, f"error: {path} ", "hint: give --out a file in")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ('checks=["hitz > 0"]', "the check 'hitz > 0' of table page_hits cannot be read"),
        ('checks=["hits >"]', "the check 'hits >' of table page_hits cannot be read"),
        ('), View("v", "select nope from page_hits"', "view v cannot be read"),
        ('), View("v", "select page frm page_hits"', "view v cannot be read"),
        ('), View("v", "select p from w"), View("w", "select hits as p from u"', "view v cannot"),
        ("""), View("v", "select content from read_text('/etc/hostname')\"""", READS_OUTSIDE),
        ("""), View("v", "from 'c.csv'\"""", "view v cannot be read"),
        ('), View("v", "select page, random() as r from page_hits"', "view v cannot be read: rand"),
        ('), View("v", "select now() as at from page_hits"', "view v cannot be read: now()"),
    ],
)
def test_sql_that_does_not_fit_a_pipelines_tables_is_refused_before_a_replay(
    web: Project, wrong: str, says: str
) -> None:
    mark = 'fold={"hits": count()}'
    assert mark in PIPELINE
    web.write(
        PIPELINE.replace("count, pipeline", "View, count, pipeline").replace(
            mark, f"{mark}{'' if wrong.startswith(')') else ', '}{wrong}"
        )
    )

    ended = web.kappa("plan").has(2)
    # One mistake is the error itself, and several are in the plan.
    assert f"web.py:8: {says}" in ended.out + ended.err


def test_a_project_without_pipelines_is_said_to_have_none(web: Project) -> None:
    (web.folder / "pipelines" / "web.py").unlink()

    assert "no pipeline is declared: each is a file in pipelines/" in web.kappa("plan").out


def test_a_plan_that_is_refused_is_not_saved(web: Project) -> None:
    web.log.begins = 3

    web.kappa("plan", "--out", "plan.json").has(1)
    assert not (web.folder / "plan.json").exists()


@pytest.mark.parametrize(
    ("moved", "says"),
    [
        ("code", ("code: pipeline web is version", "(value LIMIT in pipelines/web.py changed)")),
        ("topic", ("topics: web.hits was deleted and created again",)),
    ],
)
def test_a_plan_of_which_something_moved_is_refused(
    web: Project, moved: str, says: tuple[str, ...]
) -> None:
    web.kappa("plan", "--out", "plan.json").has(0)
    if moved == "code":
        web.edit("LIMIT = 15", "LIMIT = 30")
    else:
        web.log.known = replace(web.log.known, id="id-2")

    for each in says:
        web.kappa("deploy", "--plan", "plan.json").has(6, each)
    assert web.state.last == 0


def test_a_plan_that_was_applied_is_stale(web: Project) -> None:
    web.kappa("plan", "--out", "plan.json")
    web.kappa("deploy", "--plan", "plan.json", *NEVER_ENDS).has(5)

    stale = "journal: rollout 1 of pipeline web is on its way (record 0 then, 1 now)"
    web.kappa("deploy", "--plan", "plan.json").has(6, stale)

    web.bring_on()
    assert "is served by build" in web.kappa("deploy", "--plan", "plan.json").err
    assert web.state.last == 4


@pytest.mark.parametrize(
    "flags", [("web",), ("--accept-gap",), ("--allow-breaking",), ("--allow", "rate=night")]
)
def test_a_saved_plan_says_itself_what_is_deployed(web: Project, flags: tuple[str, ...]) -> None:
    web.kappa("plan", "--out", "plan.json")

    says = "a saved plan already names"
    web.kappa("deploy", "--plan", "plan.json", *flags).has(2, says)


def test_a_plan_that_is_none_is_a_slip(web: Project) -> None:
    web.kappa("deploy", "--plan", "pipelines/web.py").has(2)
    web.kappa("deploy", "--plan", "nowhere.json").has(2)
    web.kappa("plan", "--out", "nowhere/plan.json").has(2)


def test_a_saved_plan_needs_somebody_to_walk_it(web: Project) -> None:
    web.kappa("plan", "--out", "plan.json")
    web.store.delete("run/supervisor.json")

    web.kappa("deploy", "--plan", "plan.json").has(1)
    assert asdict(web.state)["last"] == 0


def test_a_supervisor_that_ends_before_the_rollouts_begin_leaves_none(
    web: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def law(*_: object, **__: object) -> None:
        web.store.path("run/supervisor.json").unlink()

    monkeypatch.setattr("kappa.replay.rollout.law.ensure_lawful", law)

    web.kappa("deploy", "--yes").has(1, "kappa is not up")
    assert web.state.last == 0


def test_a_rollout_that_cannot_be_followed_is_said_to_have_begun(
    web: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def staged(*given: Any, **named: Any) -> tuple[int, ...]:
        begun = stage_plan(*given, **named)
        monkeypatch.undo()
        monkeypatch.chdir(web.folder)
        web.store.path("run/supervisor.json").unlink()
        return begun

    monkeypatch.setattr("kappa.replay.rollout.stage.stage_plan", staged)

    says = "rollout 1 of pipeline web has begun, and cannot be followed: kappa is not"
    ended = web.kappa("deploy", "--yes").has(1, says)
    assert "kappa wait 1 follows it, kappa abandon 1 gives it up" in ended.err


def test_what_was_given_up_is_begun_again_with_what_was_let_through(web: Project) -> None:
    web.log.begins = 3
    web.kappa("deploy", "--yes", "--accept-gap", *NEVER_ENDS).has(5)
    first = web.rollout
    web.kappa("retry", "web", "--yes").has(6, "has not ended")
    web.kappa("abandon").has(0)

    web.kappa("retry", "web", "--yes", *NEVER_ENDS).has(5)
    assert (web.rollout.version, web.rollout.accepted) == (first.version, first.accepted)
    assert web.rollout.build != first.build
    assert web.rollout.reasons[-1] == f"rollout {first.number} is begun again"
    web.kappa("abandon").has(0)
    web.edit("LIMIT = 15", "LIMIT = 30")
    web.kappa("retry", "web", "--yes").has(6, "kappa deploy web")


class Terminal(io.StringIO):
    """A terminal that gives these answers, one per question.

    Before each answer, the text written so far is added to `shown`, and the journal's end to
    `then`.
    """

    def __init__(self, project: Project, capsys: pytest.CaptureFixture[str], *answers: str) -> None:
        super().__init__("".join(f"{answer}\n" for answer in answers))
        self.project = project
        self.capsys = capsys
        self.shown: list[str] = []
        self.then: list[int] = []

    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:
        said = self.capsys.readouterr()
        self.shown.append(said.out + said.err)
        self.then.append(self.project.state.last)
        return super().readline(size)


At = Callable[..., Terminal]


@pytest.fixture
def terminal(
    served: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> At:
    """Replaces stdin with a terminal that gives these answers.

    A rollout that was begun advances whenever a command asks for the broker, as a command does that
    follows the rollout.
    """

    def log(_: ProjectContext) -> Log:
        served.bring_on()
        return served.log

    def answering(*answers: str) -> Terminal:
        here = Terminal(served, capsys, *answers)
        monkeypatch.setattr(sys, "stdin", here)
        return here

    monkeypatch.setattr(ProjectContext, "log", log)
    served.edit("LIMIT = 15", "LIMIT = 30")
    return answering


@pytest.mark.parametrize("command", ["deploy", "replay"])
def test_a_terminal_shows_the_plan_and_the_verification_before_their_questions(
    served: Project, terminal: At, command: str
) -> None:
    asked = terminal("y", "y")
    before = served.state.last

    ended = served.kappa(command, "web").has(0)
    now_serves = f"build {served.rollout.build} (version {served.rollout.version}) serves"
    assert f"{now_serves}, generation 2" in ended.out
    plan, verification = asked.shown
    assert "+LIMIT = 30" in plan
    assert "go on?" in plan
    assert "page_hits: hits > 0: 3 rows pass" in verification
    assert "promote?" in verification
    # Nothing had been begun at the first, and nothing but the verification done at the second.
    assert asked.then == [before, before + 3]


@pytest.mark.parametrize(
    ("command", "flags"), [("deploy", ()), ("deploy", ("--auto-promote",)), ("replay", ())]
)
def test_a_no_to_the_plan_begins_nothing(
    served: Project, terminal: At, command: str, flags: tuple[str, ...]
) -> None:
    terminal("n")
    before = served.state

    says = f"what serves was not changed\nhint: to continue: kappa {command} web\n"
    served.kappa(command, "web", *flags).has(7, says)
    assert served.state == before


def test_a_no_to_the_verification_leaves_the_candidate_waiting(
    served: Project, terminal: At
) -> None:
    terminal("y", "n")

    served.kappa("deploy").has(7, "hint: to continue: kappa promote web\n")
    assert (served.state.generation, served.rollout.waits) == (1, True)


@pytest.mark.parametrize("command", ["deploy", "replay"])
def test_auto_promote_asks_about_the_plan_only(served: Project, terminal: At, command: str) -> None:
    asked = terminal("y")

    served.kappa(command, "web", "--auto-promote").has(0)
    assert ["go on?" in shown for shown in asked.shown] == [True]
    assert served.state.generation == 2


def test_a_broken_file_costs_only_its_pipelines(web: Project) -> None:
    web.put("pipelines/bad.py", "def (")

    alone = web.kappa("plan", "web").has(0, out="web: new (version ")
    looked = "note: pipelines/bad.py cannot be loaded, and its pipelines are not looked at"
    assert looked in alone.out
    assert "bad.py:1: syntax error: " in alone.out
    web.kappa("deploy", "web", "--yes", *NEVER_ENDS).has(5)
    web.kappa("topics", "list").has(
        0, "pipelines/bad.py cannot be loaded, and its topics are not known", out="web.hits"
    )

    web.kappa("deploy", "--yes").has(2, out="pipelines/bad.py: refused: ")
    for typed in (("plan", "shop"), ("topics", "create")):
        assert "bad.py:1: syntax error: " in web.kappa(*typed).has(2, "error: ").err


def test_a_topic_that_nobody_declares_is_made(web: Project) -> None:
    made = web.kappa("topics", "create", "visits-6", "--partitions", "6", "-o", "json")
    assert made.json() == [{"topic": "visits-6", "kind": None, "partitions": 6, "id": "id-2"}]
    for arguments in (("web.hits", "--partitions", "2"), ("--partitions", "2")):
        web.kappa("topics", "create", *arguments).has(2, "hint: ")


def test_validate_names_all_mistakes_at_once(web: Project) -> None:
    web.put("pipelines/bad.py", MISTAKES)
    web.put("pipelines/other.py", "from kappa import cnt\n")
    found = web.kappa("validate")

    refused = [line for line in found.out.splitlines() if "refused" in line]
    assert [line.rpartition("pipelines/bad.py:")[2] for line in refused[:4]] == [
        "3: topic bad.hits: n has the type intt, which events cannot have",
        "7: table sums has a fold and no keys",
        "8: table slow has keys and no fold",
        "14: table seconds has a fold and no keys",
    ]
    assert "other.py:1: module kappa has no cnt" in refused[4]
    assert "did you mean count?" in found.out
    assert (found.code, len(refused)) == (2, 5)
    assert "web: valid" in found.out


def test_an_error_of_views_names_all_views_and_doubts(web: Project) -> None:
    views = 'View("v", "select nope from page_hits"), View("w", "select hist from page_hits")'
    mark = 'fold={"hits": count()})'
    web.write(
        PIPELINE.replace("count, pipeline", "View, count, pipeline")
        .replace(mark, f"{mark}, {views}")
        .replace("    # A remark.\n", "    started = time.time()\n")
    )

    found = web.kappa("validate").out.splitlines()

    refused = [line for line in found if line.startswith("web: refused: ")]
    assert len(refused) == 3
    assert "web.py:8: view v cannot be read" in refused[0]
    assert "web.py:8: view w cannot be read" in refused[1]
    assert refused[2].endswith("pipelines/web.py:10 uses time.time, which reads the clock")


def test_a_board_names_columns_that_are_there(web: Project) -> None:
    chart = '[[chart]]\ntitle = "{0}"\nkind = "number"\nsql = "select {1}"\n'
    sql = {
        "Hits": "sum(hits) from page_hits",
        "Hist": "sum(hist) from page_hits",
        "Gone": "* from page_hit",
        "Rejects": "count(*) from rejects where pipeline = 'web'",
    }
    charts = "".join(chart.format(title, of) for title, of in sql.items())
    web.put("boards/b.toml", f'title = "B"\n{charts}')

    found = web.kappa("validate")

    lines = [line for line in found.out.splitlines() if "boards/b.toml" in line]
    assert (found.code, len(lines)) == (2, 2), found.out
    assert "boards/b.toml:6: chart 'Hist': " in lines[0]
    assert "hist" in lines[0]
    assert "boards/b.toml:10: chart 'Gone': " in lines[1]


def test_a_board_beside_a_refused_pipeline_is_not_called_valid(web: Project) -> None:
    """A table that no valid pipeline has may belong to the refused one; the rest is checked."""
    chart = 'title = "B"\n[[chart]]\ntitle = "C"\nkind = "number"\nsql = "select {0}"\n'
    for name, sql in {
        "good": "sum(hits) from page_hits",
        "wrong": "sum(hist) from page_hits",
        "unknown": "* from other",
    }.items():
        web.put(f"boards/{name}.toml", chart.format(sql))
    web.put("pipelines/bad.py", "def (")

    found = web.kappa("validate")

    lines = found.out.splitlines()
    assert "boards/good.toml: valid" in lines
    assert "boards/unknown.toml: not checked: pipelines/bad.py is refused" in lines
    assert "boards/wrong.toml: refused: boards/wrong.toml:2: chart 'C': " in found.out
    assert found.err.startswith("error: 2 of 5 pipelines and boards refused: pipelines/bad.py, ")
    valid = {each["board"]: each["valid"] for each in web.kappa("validate", "-o", "json").json()}
    assert (valid["good"], valid["wrong"], valid["unknown"]) == (True, False, None)
    # A pipeline that loads and is refused is called by its name.
    (web.folder / "pipelines" / "bad.py").unlink()
    web.write(PIPELINE.replace('keys=("page",)', 'keys=("pag",)'))
    refused = web.kappa("validate").out
    assert "boards/good.toml: not checked: pipeline web is refused" in refused


def test_a_wrong_setting_hides_no_mistake_of_files(web: Project) -> None:
    web.put("boards/b.toml", 'titel = "B"\n')
    web.put("pipelines/bad.py", "def (")
    settings = {
        'rot = "x"\n': "kappa.toml:1: rot is not a setting",
        '[collect.pull.x]\ntopic = "visits"\n': "collect.pull.x.topic is 'visits'",
    }
    for text, mistake in settings.items():
        web.put("kappa.toml", text)

        found = web.kappa("validate")

        errors = [line for line in found.err.splitlines() if line.startswith("error: ")]
        assert (found.code, len(errors)) == (2, 3), found.err
        assert mistake in errors[0]
        assert "bad.py:1: syntax error: " in errors[1]
        assert "boards/b.toml" in errors[2]


def test_a_plan_while_kappa_is_down_looks_at_the_code(
    served: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProjectContext, "bootstrap_servers", None)
    version = served.rollout.version
    same = served.kappa("plan")
    assert (same.code, same.out) == (1, f"web: valid (version {version}), unchanged\n")
    assert "kappa is not up: only the code was looked at" in same.err
    assert "kappa up -d" in same.err

    served.edit("LIMIT = 15", "LIMIT = 30")
    assert f", changed from version {version}\n" in served.kappa("plan").out
    served.put("pipelines/web.py", "def (")
    served.kappa("plan").has(2, out="web.py:1: syntax error: ")


def test_a_refusal_is_printed_once(web: Project) -> None:
    web.log.begins = 3

    for command in (("plan",), ("deploy", "--yes")):
        refused = web.kappa(*command).has(1)
        assert (refused.out + refused.err).count("a replay would miss what came before") == 1


def test_the_document_of_a_refused_plan_has_its_sentence_on_stderr(web: Project) -> None:
    """The document has no text of the plan, and the error on stderr names the refusal."""
    web.log.begins = 3

    refused = web.kappa("plan", "-o", "json").has(1)
    assert "a replay would miss what came before" in refused.err
    assert refused.json()["refusals"][0]["name"] == "gap"


def test_a_missing_topic_stops_the_plan_of_its_pipeline_alone(web: Project) -> None:
    web.add_pipeline("other", topic="nowhere")

    missing = "refused: topic nowhere of pipeline other is not on the broker"
    refused = web.kappa("plan").has(1, out=missing)
    assert "web: new" in refused.out
    assert "error: the plan of pipeline other is refused, as it says" in refused.err
    assert "hint: without it: kappa deploy web" in refused.err
    web.kappa("deploy", "web", "--yes", *NEVER_ENDS).has(5)
    assert [rollout.pipeline for rollout in web.state.rollouts] == ["web"]


def test_several_pipelines_are_planned_and_deployed_by_name(web: Project) -> None:
    for name in ("one", "two"):
        web.add_pipeline(name)

    assert "one: new" not in web.kappa("plan", "two", "web").out
    assert "there is no pipeline tow" in web.kappa("plan", "web", "tow").err
    web.kappa("deploy", "two", "web", "--yes", *NEVER_ENDS).has(5)
    assert [rollout.pipeline for rollout in web.state.rollouts] == ["two", "web"]


def test_files_are_validated_without_a_broker(
    web: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pipeline is validated separately, so an error in one hides nothing of the others."""

    def no_broker(_: ProjectContext) -> Log:
        raise AssertionError("the broker was asked")

    monkeypatch.setattr(ProjectContext, "log", no_broker)
    valid = web.kappa("validate")
    assert (valid.code, valid.out.startswith("web: valid (version ")) == (0, True)

    web.add_pipeline("other", more=" + time.time()")
    web.write(PIPELINE.replace('keys=("page",)', 'keys=("pag",)'))
    web.kappa("validate").has(
        2,
        "error: 2 of 2 pipelines refused: other, web",
        out=(
            "other: refused: pipelines/other.py:6 uses time.time, which reads the clock",
            "web: refused: ",
            "table page_hits needs column pag for its key pag",
            "did you mean page? it returns page, ms",
        ),
    )
    allowed = web.kappa(
        "validate", "other", "--allow", "pipelines/other.py:6=a test", "-o", "json"
    ).has(0)
    assert [(each["pipeline"], each["valid"]) for each in allowed.json()] == [("other", True)]


def test_boards_are_validated_beside_pipelines_each_on_its_own(web: Project) -> None:
    board = 'title = "Pages"\n[[chart]]\ntitle = "Hits"\nkind = "number"\nsql = "select 1"\n'
    for name, text in (
        ("good", board),
        ("pie", board.replace("number", "pie")),
        ("writes", board.replace("select 1", "drop table page_hits")),
    ):
        web.put(f"boards/{name}.toml", text)
    found = web.kappa("validate")
    lines = found.out.splitlines()

    assert found.code == 2
    assert lines[0].startswith("web: valid (version ")
    assert lines[1:4] == [
        "boards/good.toml: valid",
        "boards/pie.toml: refused: boards/pie.toml:2: chart 1: there is no kind 'pie'",
        "  there are number, line, bars, table",
    ]
    written = "boards/writes.toml: refused: boards/writes.toml:2: chart 'Hits': this is a statement"
    assert f"{written} of the kind drop" in lines[4]
    told = "error: 2 of 4 pipelines and boards refused: boards/pie.toml, boards/writes.toml"
    assert told in found.err
    listed = web.kappa("validate", "-o", "json").json()
    names = [(each["pipeline"], each["board"]) for each in listed]
    assert names == [("web", None), (None, "good"), (None, "pie"), (None, "writes")]
    # Of some pipelines alone, boards are not asked for.
    assert web.kappa("validate", "web").out.splitlines() == lines[:1]


def test_a_pipeline_that_its_file_refuses_is_named_and_the_others_are_planned(
    served: Project,
) -> None:
    served.add_pipeline("bad")
    served.add_pipeline("good")
    bad = served.folder / "pipelines" / "bad.py"
    text = bad.read_text().replace('"hits": count()', '"hits": count()}, checks=["nope > 0"]') + "#"
    bad.write_text(text.replace('0"]}', '0"]'))
    # It may declare anything, and what serves.
    served.put("pipelines/web.py", "import nowhere\n")

    for command in (("plan",), ("plan", "--detailed-exitcode"), ("deploy", "--yes")):
        refused = served.kappa(*command).has(
            2,
            out=(
                "good: new",
                "\nbad: refused: ",
                "bad.py:8: the check 'nope > 0' of table bad_hits cannot be read",
                "\npipelines/web.py: refused: ",
                "web.py:1: there is no module nowhere",
            ),
        )
        assert "no longer declared" not in refused.out
        assert "pipeline web continues to serve: whether it is declared is not known" in refused.out
        assert "error: the plan of bad, pipelines/web.py is refused, as it says" in refused.err
        assert "hint: without them: kappa deploy good" in refused.err
    served.kappa("plan", "--out", "plan.json").has(2)
    assert not (served.folder / "plan.json").exists()
    served.kappa("plan", "bad").has(2, "the check 'nope > 0'")
    # It may be declared in the file that cannot be loaded.
    served.kappa("plan", "web").has(2, "web.py:1: there is no module nowhere")

    served.kappa("deploy", "good", "--yes", *NEVER_ENDS).has(5)
    assert [rollout.pipeline for rollout in served.state.rollouts] == ["web", "good"]
