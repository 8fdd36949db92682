"""Laws of the API: it answers as the commands do, and makes the same requests, each once.

An intent is executed only on the state that its sender has seen. Metrics are readable for
dashboards.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from asking import Answered, Server, problem
from journals import frontier, held, numbered, served, staged, verified
from msgspec import structs
from plans import birth, declared
from served import DELAYS, ROWS_OF_DELAYS, Platform

from kappa.base.errors import Conflict, SettingsError, UsageError
from kappa.base.process import process_id
from kappa.commands.app import run_command
from kappa.replay.page import api
from kappa.replay.page.intents import do_once
from kappa.replay.platform.serve import serve_alone
from kappa.replay.rollout.fold import fold_records
from kappa.replay.status.context import ProjectContext
from kappa.replay.status.metrics import MetricFacts, metrics_text
from kappa.replay.status.run_records import Running, put_running
from kappa.replay.status.status import BuildStatus, Status, Unread
from kappa.replay.status.status_cache import SharedLooks
from kappa.serving.outlets.sinks.sink_status import SinkState, SinkStatus
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.build import put_birth
from kappa.state.build_status import ViewCost
from kappa.state.journal.events import Abandoned, CaughtUp, Event, PromoteAsked, SwitchAsked
from kappa.state.journal.journal import Journal
from kappa.state.journal.projections import Pause
from kappa.state.offsets import Offsets
from kappa.state.store import Store

pytestmark = pytest.mark.slow

ROLLOUTS = "/api/v1/rollouts"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Project:
    """A project whose journal is made by hand, with its server and its commands."""

    def __init__(self, folder: Path) -> None:
        settings = '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
        (folder / "kappa.toml").write_text(settings, encoding="utf-8")
        self.folder = folder
        self.store = Store(folder / ".kappa")
        self.journal = Journal(self.store)
        self.here = ProjectContext(folder, None)
        desk = SharedLooks(self.here)
        self.server = Server(self.store, Allowance(at_once=1), router=api.router, desk=desk)

    def append(self, *events: Event) -> None:
        for event in events:
            last = max((record.number for record in self.journal.after(0)), default=0)
            assert self.journal.append(last + 1, event) is not None

    def be_up(self) -> None:
        """Makes this process look like the supervisor."""
        me = process_id(os.getpid())
        put_running(self.store, Running(me.pid, me.born, "127.0.0.1:1", ""))

    def wants(
        self, document: object, *, generation: int | str = 0, key: str = "k1", **headers: str
    ) -> Answered:
        keys = {"If_Match": f'"{generation}"', "Idempotency_Key": key}
        return self.server.ask("POST", ROLLOUTS, document, **keys, **headers)

    def would(self, document: dict[str, object], **how: int) -> str:
        """Returns what an intent would do."""
        return self.wants({**document, "dry_run": True}, **how).document["would"]


@pytest.fixture
def down(tmp_path: Path) -> Iterator[Project]:
    """Yields a project whose platform is down."""
    project = Project(tmp_path)
    with project.server:
        yield project


@pytest.fixture
def project(down: Project) -> Project:
    """Returns a project that is up."""
    down.be_up()
    return down


def ready(build: str = "b1", *, rollout: int = 1) -> tuple[Event, ...]:
    return staged(build, auto_promote=False), CaughtUp(rollout, Offsets()), verified(rollout)


def went_live() -> tuple[Event, ...]:
    return staged("b1"), CaughtUp(1, Offsets()), verified(1), served(1, 1, "b1")


def test_a_promote_that_is_asked_for_over_http_is_the_commands_own_record(project: Project) -> None:
    project.append(*ready())
    looked = project.server.ask("GET", ROLLOUTS)

    found = project.wants({"intent": "promote"}, generation=looked.headers["etag"].strip('"'))

    assert found.status == 202
    assert found.document["event"] == {"kind": "promote_asked", "rollout": 1, "together": []}
    assert project.here.state().rollout(1).approved


def test_a_rollout_is_at_its_number_and_a_promote_may_name_it(project: Project) -> None:
    project.append(*went_live(), *ready("b2", rollout=5))

    found = project.server.ask("GET", f"{ROLLOUTS}/2").document
    assert (found["rollout"], found["build"], found["state"]) == (2, "b2", "ready")
    assert problem(project.server.ask("GET", f"{ROLLOUTS}/3"))[0] == 404
    asked = project.wants({"intent": "promote", "pipelines": ["2"]}, generation=1).document
    assert (asked["rollout"], asked["event"]["rollout"]) == (2, 5)


@pytest.mark.parametrize("intent", ["promote", "verify", "abandon"])
def test_a_reason_is_in_the_record_of_an_intent(project: Project, intent: str) -> None:
    project.append(*ready())

    asked = project.wants({"intent": intent, "reason": "ticket 7"}).document

    (record,) = project.journal.after(3)
    found = asked["event"]["reason"] if intent == "abandon" else record.reason
    assert found == "ticket 7"


def test_what_is_asked_again_with_the_same_key_is_done_once(project: Project) -> None:
    project.append(*ready())

    found = [project.wants({"intent": "promote"}) for _ in range(3)]

    assert {each.document["id"] for each in found} == {found[0].document["id"]}
    assert [type(record.event) for record in project.journal.after(3)] == [PromoteAsked]
    assert problem(project.wants({"intent": "abandon"}))[:2] == (400, "usage")


def test_what_was_looked_at_has_to_be_what_is_there(project: Project) -> None:
    project.append(*went_live(), staged("b2"))
    abandon = {"intent": "abandon"}
    assert problem(project.wants(abandon, generation=0))[0] == 412
    for headers in ({}, {"If_Match": '"1"'}):
        assert problem(project.server.ask("POST", ROLLOUTS, abandon, **headers))[0] == 428
    done = project.wants(abandon, generation=1).document
    assert done["event"]["kind"] == "abandoned"
    assert problem(project.wants(abandon, generation=1, key="k2"))[1] == "usage"


@pytest.mark.parametrize("intent", ["promote", "abandon", "verify"])
def test_yes_is_to_the_rollout_looked_at(project: Project, intent: str) -> None:
    """A yes is valid only for the rollout that its sender saw, not for a later rollout."""
    project.append(*ready())
    wanted = {"intent": intent, "pipelines": ["flights"], "rollout": 1}
    assert "b1" in project.would(wanted)

    # The generation is the same all the while: nothing serves.
    project.append(Abandoned(1, "somebody was quicker"), *ready("b2", rollout=5))

    for dry_run in (True, False):
        status, kind, detail = problem(project.wants({**wanted, "dry_run": dry_run}))
        assert (status, kind) == (409, "conflict")
        assert "rollout 2, begun by" in detail
    assert [record.number for record in project.journal.after(7)] == []
    asked = project.wants({**wanted, "rollout": 2}, key="k2").document
    # The record names it as all records do, by the one that began it.
    assert (asked["rollout"], asked["event"]["rollout"]) == (2, 5)


@pytest.mark.parametrize(
    "document",
    [
        {"intent": "undo", "rollout": 1},
        {"intent": "promote", "pipelines": ["a", "b"], "rollout": 1},
        {"intent": "abandon", "rollout": 9},
    ],
)
def test_rollout_that_is_none_or_not_all_is_refused(
    project: Project, document: dict[str, object]
) -> None:
    project.append(*ready())
    assert problem(project.wants(document))[0] == 400


def test_an_undo_tells_first_what_it_would_do(project: Project) -> None:
    both = (staged("b2"), CaughtUp(5, Offsets()), verified(5), held(5, "b1"))
    project.append(*went_live(), *both, served(5, 2, "b2", live="b1"))

    told = project.wants({"intent": "undo", "dry_run": True}, generation=2)
    switch = (
        "build b1 (version versio…) of pipeline flights will serve instead of b2 (version versio…)"
    )
    assert told.document == {"would": switch, "details": []}
    assert list(project.journal.after(9)) == []

    assert project.wants({"intent": "undo"}, generation=2).document["event"]["build"] == "b1"
    assert [type(record.event) for record in project.journal.after(9)] == [SwitchAsked]


def test_a_pipeline_is_retired_over_http_once_and_told_first(project: Project) -> None:
    project.append(*went_live())
    put_birth(project.store, birth("b1", declared()))
    wanted: dict[str, object] = {"intent": "retire", "pipelines": ["flights"]}

    assert "serves no more" in project.would(wanted, generation=1)
    found = project.wants(wanted, generation=1).document["event"]
    assert (found["kind"], found["generation"], found["serving"]) == ("pipeline_retired", 2, {})
    assert problem(project.wants(wanted, generation=1, key="k2"))[0] == 412
    again = project.wants(wanted, generation=2, key="k3").document
    assert "was retired at generation 2" in again["already"]


def test_a_pipeline_is_paused_and_resumed_over_http(project: Project) -> None:
    project.append(*went_live())
    for key, intent in enumerate(["resume", "pause", "pause", "resume"]):
        wanted: dict[str, object] = {"intent": intent, "pipelines": ["flights"]}
        assert project.would(wanted, generation=1)
        assert project.wants(wanted, generation=1, key=f"k{key}").status == 202

    assert [record.event.kind for record in project.journal.after(4)] == ["paused", "resumed"]
    assert problem(project.wants({"intent": "pause"}, generation=1, key="k9"))[1] == "usage"


@pytest.mark.parametrize(
    "document",
    [
        *({"intent": "drop"}, {"intent": "undo", "to": 0}, {"intent": "undo", "more": 1}),
        *({"intent": "undo", "pipelines": ["a", "b"]}, [], {}),
    ],
)
def test_what_is_no_intent_is_refused(project: Project, document: dict[str, object]) -> None:
    assert problem(project.wants(document))[0] == 400


def test_where_nobody_would_do_it_nothing_is_appended(down: Project) -> None:
    down.append(*ready())

    assert problem(down.wants({"intent": "promote"}))[:2] == (503, "unreachable")
    assert list(down.journal.after(3)) == []


def test_api_tells_what_commands_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kappa.toml").touch()
    platform = Platform(Store(tmp_path / ".kappa"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    desk = SharedLooks(ProjectContext(tmp_path, None))
    allowed = Allowance(at_once=1)
    with Server(platform.store, allowed, router=api.router, desk=desk) as server:
        for path, command in (("tables", ["tables"]), ("rejects", ["rejects"])):
            assert run_command(["--project", str(tmp_path), *command, "-o", "json"]) == 0
            assert server.ask("GET", f"/api/v1/{path}").body.decode() == capsys.readouterr().out
        assert server.ask("GET", "/api/v1/rejects?limit=0").status == 400
        assert problem(server.ask("GET", "/api/v1/rejects?pipeline=nobody"))[1] == "usage"


def test_history_and_builds_are_as_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The API tells history and builds exactly as the commands do."""
    project = Project(tmp_path)
    (tmp_path / "kappa.toml").write_text("", encoding="utf-8")
    project.append(*went_live())
    with project.server as server:
        assert run_command(["--project", str(tmp_path), "history", "-o", "json"]) == 0
        assert server.ask("GET", "/api/v1/history").body.decode() == capsys.readouterr().out
        assert server.ask("GET", ROLLOUTS).document["generation"] == 1
        assert server.ask("GET", f"{ROLLOUTS}?active=true").document["rollouts"] == []


def test_what_was_broken_off_is_not_done_again(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def dies() -> dict[str, object]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do_once(store, "k", 1, dies, clock=lambda: 0.0)
    with pytest.raises(Conflict, match="broken off"):
        do_once(store, "k", 1, dict, clock=lambda: 0.0)

    assert do_once(store, "k", 1, lambda: {"done": 1}, clock=lambda: 90_000.0) == {"done": 1}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"at": 0}', b"\0" * 40])
def test_torn_claim_stops_no_other_request(any_store: Store, content: bytes) -> None:
    """A damaged record of one request hinders no other request; its own is done at most once."""
    store = any_store
    assert do_once(store, "k", 1, lambda: {"done": 1}) == {"done": 1}
    (name,) = store.names("run/asked")
    store.put(name, content)

    assert do_once(store, "another", 1, lambda: {"done": 2}) == {"done": 2}
    with pytest.raises(Conflict, match="broken off"):
        do_once(store, "k", 1, lambda: {"done": 3})
    days_later = time.time() + 100_000.0
    assert do_once(store, "k", 1, lambda: {"done": 4}, clock=lambda: days_later) == {"done": 4}


def test_what_was_refused_may_be_asked_again_with_the_same_key(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def refuses() -> dict[str, object]:
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        do_once(store, "k", 1, refuses)
    assert do_once(store, "k", 1, lambda: {"done": 1}) == {"done": 1}
    with pytest.raises(UsageError, match="another request"):
        do_once(store, "k", 2, lambda: {"done": 2})
    with pytest.raises(UsageError, match="characters"):
        do_once(store, "k" * 201, 1, dict)


def test_metrics_have_the_names_and_labels_that_boards_know() -> None:
    state = fold_records(numbered(*went_live(), *ready("b2", rollout=5)))
    offsets = Offsets({"flights": {0: 40, 1: 7}})
    fresh_at = datetime(2026, 1, 1, 11, 59, 58, tzinfo=UTC)
    live = BuildStatus('fli"ghts\n', "live", "b1", "v1", offsets, 13, fresh_at, 47, 3)
    live = replace(
        live,
        topics=frozenset({"flights"}),
        duplicate=2,
        view_costs={"busy": ViewCost("whole", 9, 3, 0.25, "then")},
    )
    waits = {"role": "candidate", "build": "b2", "rollout": state.rollout(5), "rate": 12.5}
    candidate = replace(live, folded=30, lag=30, **waits)
    rested = replace(live, role="idle", build="b0", lag=0, pause=Pause("then", "ada"))
    end = Offsets({"flights": {0: 50, 1: 10}, "other": {0: 9}})
    unread = (Unread("web", "logs.*", "logs.a"), Unread("web", "logs.*", "logs.b"))
    status = Status(1, (live, rested, candidate), end=end, unread=unread)
    newest, before = (
        structs.replace(frontier("b1", 1), published_at=at)
        for at in ("2026-01-01T11:59:58+00:00", "2026-01-01T11:59:57.250+00:00")
    )
    out = SinkState("out", "t", "web", "follows", written=7, error="no")
    new = SinkState("new", "t", "web", "starts")

    told = metrics_text(
        MetricFacts(
            state,
            status,
            {"b1": (newest, before), "b2": (newest, None)},
            {("flights", "no_json"): 4},
            supervised=True,
            alerts={"late": (5, 1, 2)},
            sinks=(SinkStatus(out, "follows", 2.5), SinkStatus(new, "starts", None)),
        ),
        NOW,
    )

    of = 'pipeline="fli\\"ghts\\n",build'
    lines = told.splitlines()
    assert {*lines} >= {
        'kappa_alert_delivered_total{alert="late"} 5',
        'kappa_alert_dead_letters{alert="late"} 2',
        'kafka_consumergroup_lag{consumergroup="b1",topic="flights",partition="0"} 10',
        'kafka_consumergroup_lag{consumergroup="b1",topic="flights",partition="1"} 3',
        f'kappa_replay_ratio{{{of}="b2",role="candidate"}} 0.5',
        f'kappa_slice_duration_seconds{{{of}="b1",role="live"}} 0.75',
        f'kappa_freshness_seconds{{{of}="b1",role="live"}} 2',
        f'kappa_freshness_seconds{{{of}="b0",role="idle"}} 0',
        'kappa_rejects{pipeline="flights",reason="no_json"} 4',
        "kappa_promotes_total 1",
        'kappa_sink_records_total{sink="out",what="written"} 7',
        'kappa_sink_behind_seconds{sink="out"} 2.5',
        f'kappa_paused{{{of}="b0",role="idle"}} 1',
        f'kappa_paused{{{of}="b1",role="live"}} 0',
        "kappa_generation 1",
        'kappa_topics_unread{pipeline="web",pattern="logs.*"} 2',
    }
    assert 'build="b1",role="live",view="busy",way="whole"} 0.25\n' in told
    assert 'build="b1",role="live",view="busy",way="whole"} 3\n' in told
    assert 'kappa_sink_failing{sink="out"} 1\nkappa_sink_failing{sink="new"} 0\n' in told
    assert 'topic="other"' not in told
    assert 'kappa_sink_behind_seconds{sink="new"}' not in told
    line = r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="([^"\\\n]|\\.)*",?)+\})? -?[0-9.e+-]+'
    assert all(re.fullmatch(line, each) for each in lines)


def test_metrics_are_there_before_anything_serves(down: Project) -> None:
    found = down.server.ask("GET", "/metrics")

    assert found.status == 200
    assert found.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"kappa_generation 0\n" in found.body


@pytest.fixture
def here(tmp_path: Path) -> ProjectContext:
    (tmp_path / "kappa.toml").touch()
    return ProjectContext(tmp_path, None)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "example.org:0", "10.1.2.3:0"])
def test_other_machines_are_let_in_by_a_token_alone(here: ProjectContext, listen: str) -> None:
    with pytest.raises(SettingsError, match="no token") as told:
        serve_alone(here, listen=listen, say=print)
    assert "KAPPA__SERVE__TOKEN" in told.value.hint


def test_a_token_that_can_be_guessed_is_none(here: ProjectContext) -> None:
    with pytest.raises(SettingsError, match="the token has 6 characters") as told:
        serve_alone(here, token="s3cret", say=print)
    assert "openssl rand -hex 32" in told.value.hint


def test_a_place_that_is_none_or_taken_is_said_so(here: ProjectContext) -> None:
    for listen in ("8717", "localhost:", ":1", "localhost:99999"):
        with pytest.raises(SettingsError, match="not a place to listen at"):
            serve_alone(here, listen=listen, say=print)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(Conflict, match="nothing can listen at"),
    ):
        serve_alone(here, listen=f"127.0.0.1:{taken.getsockname()[1]}", say=print)
