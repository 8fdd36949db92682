"""Rights at every address, with a token for each role, and with readers of some tables."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from asking import Answered, Server, problem
from fastapi.routing import APIWebSocketRoute, iter_route_contexts
from oidc_issuer import AUDIENCE, CLIENT_SECRET, OidcIssuer
from page_world import World

from kappa.base.sections import AccessSettings, GrantSettings, OidcSettings, Role
from kappa.replay.page import api, routes
from kappa.replay.rollout.generation import code_of, generation_details, serving_in, show_text
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.oidc import Issuer
from kappa.serving.access.roles import LEAST_ROLE, Act
from kappa.serving.access.tokens import TokenFile
from kappa.serving.http import changes, events, request_checks
from kappa.serving.http.http import make_app
from kappa.serving.http.rights import need_of
from kappa.serving.http.token import COOKIE
from kappa.serving.outlets.changes.follower_registry import ChangeHub
from kappa.serving.query.sandbox.processes import QueryWorker
from kappa.serving.query.sandbox.question import Allowance
from kappa.serving.query.sandbox.workers import OpenedSnapshot, WorkerPool
from kappa.state.build import read_birth
from kappa.state.journal.journal import Journal

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "roles.md"
HTML = "text/html"
ALL = (Role.READ, Role.COLLECT, Role.STAGE, Role.OPERATE, Role.ADMIN)


def routes_of() -> Iterator[tuple[str, object]]:
    """Yields each address of the server that `kappa up` starts, with the route's function."""
    routers = (events.router, changes.router, api.router, *routes.ROUTERS)
    app: Any = make_app(None, accounts=Accounts(), routers=routers)._inside  # type: ignore[arg-type]
    for each in iter_route_contexts(app.routes):
        methods = (
            ["WEBSOCKET"] if isinstance(each.original_route, APIWebSocketRoute) else each.methods
        )
        for method in sorted({*(methods or ())} - {"HEAD"}):
            yield f"{method} {each.path}", each.endpoint


def told_acts() -> Mapping[str, tuple[str, list[str]]]:
    """Reads the docs' table: each act with its least role and its addresses."""
    rows = re.findall(
        r"^\| `?(\w+)`? \| `?(\w+)`? \| .*? \| (.*?) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {act: (role, re.findall(r"`([A-Z]+ /[^`]*)`", places)) for act, role, places in rows}


def test_each_address_names_its_act_as_the_docs_tell() -> None:
    """A route without an act is refused, and the docs have every address once."""
    told = {place: act for act, (_, places) in told_acts().items() for place in places}
    found = {
        place: need.act or "none"
        for place, route in routes_of()
        if (need := need_of(route)) is not None
    }

    # The description of the API is for every client that is known, whatever it may do.
    assert {place for place, route in routes_of() if need_of(route) is None} == {
        "GET /api/v1/openapi.json"
    }
    assert found == told


def test_the_docs_tell_the_least_role_of_each_act() -> None:
    """The docs' table of acts agrees with the code."""
    told = {act: role for act, (role, _) in told_acts().items()}

    assert {act: told[act] for act in Act} == {act: str(role) for act, role in LEAST_ROLE.items()}


class Clients:
    """A server with tokens for each role and for readers of some tables, and with an issuer."""

    waiting = 0

    def __init__(self, world: World, folder: Path, issuer: OidcIssuer) -> None:
        file = TokenFile(folder / "tokens.json")
        self.tokens = {str(role): file.add_token(role, [role], made_by="me") for role in ALL}
        for name, tables in (
            ("pages", ["page_hits"]),
            ("view", ["by_page"]),
            ("late", ["page_hit", "by_page"]),
            ("rejected", ["web.rejects"]),
        ):
            self.tokens[name] = file.add_token(name, [Role.READ], tables, made_by="me")
        self.file = file
        self.issuer = issuer
        access = AccessSettings(
            oidc=OidcSettings(
                issuer=issuer.url,
                audience="kappa-api",
                client=AUDIENCE,
                client_secret=CLIENT_SECRET,
            ),
            people={"alice@example.com": GrantSettings(roles=[Role.OPERATE])},
        )
        self.world = world
        self.server = Server(
            world.store,
            Allowance(at_once=2),
            accounts=Accounts(file=TokenFile(file.path), issuer=Issuer(access)),
            router=api.router,
            more=(events.router, changes.router, *routes.ROUTERS),
            desk=world.desk,
            changes=ChangeHub(world.store, lease_seconds=60, keep_seconds=60, limits=None),
        )

    def ask(self, who: str, method: str, path: str, body: object = None, **more: str) -> Answered:
        token = self.tokens.get(who, who)
        return self.server.ask(method, path, body, Authorization=f"Bearer {token}", **more)

    def page(self, who: str, path: str) -> Answered:
        return self.ask(who, "GET", path, Accept=HTML)

    def query(self, who: str, sql: str, **more: str) -> Answered:
        return self.ask(who, "POST", "/api/v1/query", {"sql": sql}, **more)

    def intent(self, who: str, key: str, **wanted: object) -> Answered:
        return self.ask(who, "POST", "/api/v1/rollouts", wanted, If_Match="*", Idempotency_Key=key)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    folder = tmp_path_factory.mktemp("rights")
    (folder / "project").mkdir()
    world = World(folder / "project")
    waiting = world.lives()
    world.build("shop-1", pipeline="shop")
    world.goes_live("shop-1", 3, pipeline="shop")
    world.be_up()
    world.declares_board(
        "hits",
        'title = "Hits"\n'
        '[[chart]]\ntitle = "Mine"\nkind = "number"\n'
        'sql = "select sum(hits)::bigint as n from page_hits"\n'
        '[[chart]]\ntitle = "Theirs"\nkind = "number"\nsql = "select count(*) as n from by_page"\n',
    )
    with OidcIssuer() as issuer:
        found = Clients(world, folder, issuer)
        found.waiting = waiting
        with found.server:
            yield found


def test_a_reader_of_a_table_reads_it_and_no_other(clients: Clients) -> None:
    """A query that names another table is refused by name, whether the table exists or not."""
    assert clients.query("pages", "select count(*) as n from page_hits").document["rows"] == [
        {"n": 40}
    ]
    assert clients.query("pages", "from web.page_hits limit 1").status == 200
    for sql, name in (
        ("from by_page", "by_page"),
        ("from web.by_page", "web.by_page"),
        ("from rejects", "rejects"),
        ("from web.rejects", "web.rejects"),
        ('from "hits_shop-1"', "hits_shop-1"),
        ("from nothing_of_the_kind", "nothing_of_the_kind"),
        ("select (select max(hits) from by_page) from page_hits", "by_page"),
        ("with page_hits as (from by_page) from page_hits", "by_page"),
        ("from page_hits union all by name from by_page", "by_page"),
        ("describe by_page", "by_page"),
        ("summarize web.by_page", "web.by_page"),
        ("FROM BY_PAGE", "BY_PAGE"),
        ('from "main"."by_page"', "main.by_page"),
        ("from memory.main.page_hits", "memory.main.page_hits"),
        ("from information_schema.tables", "information_schema.tables"),
    ):
        status, kind, told = problem(clients.query("pages", sql))
        assert (status, kind, told) == (403, "forbidden", f"token pages may not read {name}")
    assert clients.query("read", "from by_page").status == 200


def test_the_head_of_an_answer_tells_no_other_table(clients: Clients) -> None:
    """Headers and document name only the versions of tables that the reader may read."""
    found = clients.query("pages", "select 1 as one from page_hits limit 1")

    (build,) = json.loads(found.headers["x-kappa-builds"]).values()
    versions = json.loads(found.headers["x-kappa-versions"])
    assert {*versions[build]} == {"page_hits"}
    assert found.document["builds"].keys() == {"web"}
    assert {*found.document["builds"]["web"]["versions"]} == {"page_hits"}


def test_a_wait_for_a_write_tells_no_names(clients: Clients) -> None:
    """A client that may read some tables learns neither pipelines nor topics from a wait."""
    for token, told in (("visits:0=999999999", "do not see"), ("nothing:0=1", "nothing reads")):
        late = {"Kappa_After": token, "Kappa_Wait": "0"}
        mine, theirs = (clients.query(who, "from page_hits", **late) for who in ("pages", "read"))
        assert told in problem(mine)[2]
        assert mine.status == theirs.status
        assert b"shop" not in mine.body
        assert b"web" not in mine.body
        assert b"web" in theirs.body or b"visits" in theirs.body


def test_a_view_is_read_without_its_tables(clients: Clients) -> None:
    """A readable view reads its tables, although its reader may not name these tables."""
    assert len(clients.query("view", "from by_page").document["rows"]) == 9
    assert problem(clients.query("view", "from page_hits"))[2] == (
        "token view may not read page_hits"
    )
    assert problem(clients.query("view", "from web.page_hits"))[0] == 403


def test_rejects_of_one_pipeline_are_read_alone(clients: Clients) -> None:
    """`web.rejects` is the part of all rejects that belongs to pipeline web."""
    found = clients.query("rejected", "select distinct pipeline from rejects")

    assert found.document["rows"] == [{"pipeline": "web"}]
    assert clients.ask("rejected", "GET", "/api/v1/rejects?pipeline=web").status == 200
    assert clients.ask("rejected", "GET", "/api/v1/rejects").status == 403
    assert clients.ask("rejected", "GET", "/api/v1/rejects?pipeline=shop").status == 403
    assert clients.ask("rejected", "GET", "/api/v1/rejects?pipeline=web&build=shop-1").status == 400


def test_a_pinned_snapshot_gives_nobody_more(clients: Clients) -> None:
    """In a snapshot that another client has pinned, a reader sees only its own tables."""
    pinned = clients.query("read", "from by_page", X_Kappa_Snapshot="new").headers[
        "x-kappa-snapshot"
    ]

    assert clients.query("pages", "from page_hits", X_Kappa_Snapshot=pinned).status == 200
    assert clients.query("pages", "from by_page", X_Kappa_Snapshot=pinned).status == 403


def test_changes_are_of_readable_tables_alone(clients: Clients) -> None:
    """Streams of other tables are refused by name, as queries are."""
    for path in (
        "/api/v1/tables/by_page/changes",
        "/api/v1/tables/nothing/changes",
        "/api/v1/changes?table=page_hits&table=by_page",
    ):
        status, kind, told = problem(clients.ask("pages", "GET", path))
        assert (status, kind) == (403, "forbidden")
        assert "token pages may not read" in told
    key = {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    handshake = {"Connection": "Upgrade", "Upgrade": "websocket", **key}
    refused = clients.ask("pages", "GET", "/api/v1/tables/by_page/changes", None, **handshake)
    assert problem(refused)[0] == 403


def test_a_table_not_served_yet_names_no_other(clients: Clients) -> None:
    """Only a reader of all tables gets a hint at the nearest name."""
    path = "/api/v1/tables/page_hit/changes"
    assert b"page_hits" in clients.ask("read", "GET", path).body

    refused = clients.ask("late", "GET", path)

    assert refused.status == 404
    assert b"page_hits" not in refused.body
    assert "by_page, page_hit" in refused.document["hint"]


def test_a_view_is_shown_without_its_query(clients: Clients) -> None:
    """A view's page hides its query, because it names tables that its reader may not read."""
    page = "/tables/web/by_page"
    assert b"from page_hits" in clients.page("read", page).body
    assert b"page_hits" not in clients.page("view", page).body


def test_lists_pages_and_files_have_readable_tables(clients: Clients) -> None:
    """A table that is not readable appears in no list, page, file or board."""
    listed = clients.ask("pages", "GET", "/api/v1/tables").document
    assert [each["table"] for each in listed] == ["page_hits"]
    page = clients.page("pages", "/tables").body.decode()
    assert "page_hits" in page
    assert "by_page" not in page
    assert "by_page" not in clients.page("pages", "/query").body.decode()
    assert clients.page("pages", "/tables/web/page_hits").status == 200
    refused = clients.page("pages", "/tables/web/by_page")
    assert refused.status == 403
    assert "Token pages may not read by_page." in refused.body.decode()
    assert clients.ask("pages", "GET", "/query.csv?sql=from%20page_hits").status == 200
    assert clients.ask("pages", "GET", "/query.csv?sql=from%20by_page").status == 403
    board = clients.page("pages", "/boards/hits").body.decode()
    assert "820" in board
    assert "may not read" in board
    assert b"may not read" not in clients.page("read", "/boards/hits").body


def test_a_reader_sees_why_nothing_is_redriven(clients: Clients) -> None:
    """The button is shown to those who may redrive, and the address refuses all others."""
    redrive = ("POST", "/api/v1/rejects/redrive", {"lines": ["{}"], "dry_run": True})

    assert clients.page("operate", "/rejects").body.count(b"data-redrive") == 2
    assert clients.ask("operate", *redrive).status == 400
    for who in ("read", "stage"):
        page = clients.page(who, "/rejects").body.decode()
        assert "data-redrive" not in page
        assert f"token {who} may not redrive; that needs the role operate" in page.replace(":", ";")
        assert clients.ask(who, *redrive).status == 403
    assert clients.ask("read", "GET", "/rejects/line?at=visits:0:7").status == 403
    assert clients.ask("stage", "GET", "/rejects/line?at=visits:0:7").status == 200


def test_a_reader_sees_why_no_dead_letter_is_sent(clients: Clients) -> None:
    """The buttons are shown to those who may redrive, and the address refuses all others."""
    retry = ("POST", "/api/v1/alerts/retry", {"alert": "late", "dry_run": True})

    assert clients.page("operate", "/alerts").body.count(b"data-letters") == 1
    assert clients.ask("operate", *retry).document["letters"] == 1
    for who in ("read", "stage"):
        page = clients.page(who, "/alerts").body.decode()
        assert "data-letters" not in page
        assert f"token {who} may not redrive; that needs the role operate" in page.replace(":", ";")
        assert clients.ask(who, *retry).status == 403


def test_a_reader_of_tables_sees_no_platform(clients: Clients) -> None:
    """A reader of tables sees no pipelines, rollouts, topics, logs or metrics."""
    for path in (
        *(f"/api/v1/{each}" for each in ("builds", "pipelines", "rollouts", "history", "topics")),
        *("/api/v1/sinks", "/api/v1/alerts", "/api/v1/events", "/metrics", "/history", "/topics"),
        *("/topics/visits", "/alerts", "/logs/http"),
    ):
        assert clients.ask("pages", "GET", path).status == 403, path
    overview = clients.page("pages", "/")
    assert (overview.status, overview.headers["location"]) == (303, "/tables")
    assert 'href="/history"' not in clients.ask("pages", "GET", "/tables").body.decode()


@pytest.mark.parametrize(
    ("who", "may_look", "may_inspect", "may_query"),
    [
        ("read", 200, 403, 200),
        ("collect", 403, 403, 403),
        ("stage", 200, 200, 200),
        ("operate", 200, 200, 200),
        ("admin", 200, 200, 200),
    ],
)
def test_each_role_has_its_addresses(
    clients: Clients, who: str, may_look: int, may_inspect: int, may_query: int
) -> None:
    """Raw records and logs need the role `stage`, tables need `read`."""
    assert clients.ask(who, "GET", "/api/v1/builds").status == may_look
    assert clients.ask(who, "GET", "/topics/visits").status == may_inspect
    assert clients.query(who, "select 1 as n").status == may_query
    assert clients.ask(who, "GET", "/api/v1/openapi.json").status == 200


@pytest.mark.parametrize("who", ["read", "collect", "pages", "stage"])
@pytest.mark.parametrize("intent", ["promote", "undo", "retire", "pause", "resume"])
def test_nobody_moves_the_serving_map_without_the_role(
    clients: Clients, who: str, intent: str
) -> None:
    """A request without the right leaves no record, and neither does a dry run."""
    before = Journal(clients.world.store).last_served()

    for dry_run in (False, True):
        refused = clients.intent(
            who, f"{who}-{intent}", intent=intent, pipelines=["web"], dry_run=dry_run
        )
        assert problem(refused)[:2] == (403, "forbidden")
    assert Journal(clients.world.store).last_served() == before


def test_the_journal_names_who_asked(clients: Clients) -> None:
    """A record over HTTP names its client, and not the user who runs the server."""
    paused = clients.intent("operate", "k1", intent="pause", pipelines=["shop"])
    alice = clients.issuer.token(aud="kappa-api")
    resumed = clients.intent(alice, "k2", intent="resume", pipelines=["shop"])

    assert (paused.status, paused.document["by"]) == (202, "token operate")
    assert (resumed.status, resumed.document["by"]) == (202, "alice@example.com")
    history = clients.page("operate", "/history").body.decode()
    assert "token operate" in history
    assert "alice@example.com" in history


def test_a_page_says_why_a_button_is_not_there(clients: Clients) -> None:
    """A reader without the right sees which role the button needs."""
    number = clients.waiting
    for path, intent in (("/", "retire"), (f"/rollouts/{number}", "promote")):
        reader = clients.page("read", path).body.decode()
        operator = clients.page("operate", path).body.decode()

        why = f"token read may not {intent}: that needs the role operate, and it has read"
        assert f'data-intent="{intent}"' not in reader
        assert why in reader
        assert f'data-intent="{intent}"' in operator
        assert "may not" not in operator
    stager = clients.page("stage", f"/rollouts/{number}").body.decode()
    assert 'data-intent="verify"' in stager
    assert 'data-intent="promote"' not in stager


def test_a_cookie_is_of_its_token_and_ends_with_it(clients: Clients) -> None:
    """The page asks for a token once. If that token is removed, the browser is signed out."""
    token = clients.file.add_token("guest", [Role.READ], ["page_hits"], made_by="me")
    sent = clients.server.ask(
        "POST",
        "/login",
        f"token={token}&next=/tables".encode(),
        Content_Type="application/x-www-form-urlencoded",
    )
    cookie = sent.headers["set-cookie"].partition(";")[0]
    assert token not in cookie

    page = clients.server.ask("GET", "/tables", Accept=HTML, Cookie=cookie)
    assert page.status == 200
    assert "token guest" in page.body.decode()
    assert clients.server.ask("GET", "/history", Accept=HTML, Cookie=cookie).status == 403
    forged = cookie[:-1] + ("0" if cookie[-1] != "0" else "1")
    nested = base64.urlsafe_b64encode(b'{"x":' + b"[" * 5_000).decode()
    wrongs = (
        forged,
        *(f"{COOKIE}={each}" for each in ("1.x.y", "9.e30=.aa", "..", f"9.{nested}.a")),
    )
    for wrong in (*wrongs, COOKIE):
        assert clients.server.ask("GET", "/tables", Accept=HTML, Cookie=wrong).status == 303

    clients.file.remove_token("guest")
    assert clients.server.ask("GET", "/tables", Accept=HTML, Cookie=cookie).status == 303
    again = clients.file.add_token("guest", [Role.ADMIN], made_by="me")
    assert clients.server.ask("GET", "/tables", Accept=HTML, Cookie=cookie).status == 303
    assert clients.ask(again, "GET", "/api/v1/builds").status == 200
    clients.file.remove_token("guest")


def test_a_stream_ends_with_its_token(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open stream sends nothing more once its client's token is removed."""
    monkeypatch.setattr(request_checks, "_LOOK_SECONDS", 0.0)
    token = clients.file.add_token("leaving", [Role.READ], made_by="me")
    connection = HTTPConnection("127.0.0.1", clients.server.port, timeout=30)
    with closing(connection):
        headers = {"Authorization": f"Bearer {token}"}
        connection.request("GET", "/api/v1/events", headers=headers)
        stream = connection.getresponse()
        assert stream.readline().startswith(b"retry")
        clients.intent("operate", "k3", intent="pause", pipelines=["shop"])
        seen = b""
        while b"event: paused" not in seen:
            seen += stream.readline()

        clients.file.remove_token("leaving")
        clients.intent("operate", "k4", intent="resume", pipelines=["shop"])
        try:
            rest = stream.read()
        except (IncompleteRead, ConnectionError) as error:
            rest = getattr(error, "partial", b"")
        assert b"event: resumed" not in rest


def test_a_token_of_the_issuer_that_is_wrong_says_why(clients: Clients) -> None:
    """A person whose token has expired gets that message, and is not admitted."""
    expired = clients.issuer.token(aud="kappa-api", exp=1_000_000_000)
    stranger = clients.issuer.token(aud="kappa-api", email="eve@example.com", groups=[])

    refused = clients.ask(expired, "GET", "/api/v1/builds")
    assert problem(refused)[::2] == (401, "the issuer's token was refused: it has expired")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert problem(clients.ask(stranger, "GET", "/api/v1/builds"))[::2] == (
        403,
        "eve@example.com may not look: that needs the role read, and it has none",
    )


def begun(clients: Clients, meant: str = "/history") -> tuple[str, str]:
    """Begins a sign-in; returns the issuer's URL and the cookie of this sign-in."""
    sent = clients.server.ask("GET", f"/login/oidc?next={quote(meant, safe='')}", Accept=HTML)
    assert sent.status == 303
    return sent.headers["location"], sent.headers["set-cookie"].partition(";")[0]


def come_back(clients: Clients, cookie: str, **brought: str) -> Answered:
    return clients.server.ask(
        "GET", f"/login/oidc/back?{urlencode(brought)}", Accept="application/json", Cookie=cookie
    )


def test_a_person_signs_in_at_the_issuer(clients: Clients) -> None:
    """The page leads to the issuer and back, and then knows the person."""
    form = clients.server.ask("GET", "/login?next=/history", Accept=HTML).body.decode()
    assert f"Sign in at {clients.issuer.url.removeprefix('http://')}" in form
    url, cookie = begun(clients)

    back = come_back(clients, cookie, **clients.issuer.signs_in(url))

    assert back.status == 200
    assert 'content="0; url=/history"' in back.body.decode()
    session = back.headers["set-cookie"]
    assert session.startswith(f"{COOKIE}=")
    assert "samesite=strict" in session.lower()
    assert "HttpOnly" in session
    page = clients.server.ask("GET", "/", Accept=HTML, Cookie=session.partition(";")[0])
    assert page.status == 200
    assert "alice@example.com" in page.body.decode()


def test_a_sign_in_that_was_not_begun_here_ends_nowhere(clients: Clients) -> None:
    """A code, state or token of another sign-in admits nobody (RFC 6749, 10.12)."""
    url, cookie = begun(clients)
    brought = clients.issuer.signs_in(url)
    other_url, other_cookie = begun(clients)
    code = clients.issuer.signs_in(other_url)["code"]

    for wrong in (
        come_back(clients, "", **brought),
        come_back(clients, other_cookie, **brought),
        come_back(clients, cookie + "0", **brought),
        come_back(clients, cookie, **(brought | {"state": ""})),
        come_back(clients, cookie, state=brought["state"]),
        come_back(clients, cookie, error="access_denied"),
        # A code that an attacker has got for their own sign-in.
        come_back(clients, cookie, **(brought | {"code": code})),
        come_back(clients, cookie, **(brought | {"code": "made-up"})),
    ):
        assert problem(wrong)[:2] == (401, "token-refused")
        assert f"{COOKIE}=" not in wrong.headers.get("set-cookie", "")


@pytest.mark.parametrize(
    "changes",
    [{"nonce": "another"}, {"nonce": None}, {"aud": "kappa-api"}, {"exp": 1}, {"email": None}],
)
def test_a_token_of_another_sign_in_is_refused(
    clients: Clients, changes: dict[str, object]
) -> None:
    """The issuer's token must be for this client, for this sign-in, and for a person."""
    url, cookie = begun(clients)

    refused = come_back(clients, cookie, **clients.issuer.signs_in(url, **changes))

    assert problem(refused)[:2] == (401, "token-refused")


@pytest.mark.parametrize("meant", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_after_a_sign_in_nobody_is_sent_elsewhere(clients: Clients, meant: str) -> None:
    """The way back leads to this server, whatever the link to the sign-in contained."""
    url, cookie = begun(clients, meant)

    back = come_back(clients, cookie, **clients.issuer.signs_in(url))

    assert 'content="0; url=/"' in back.body.decode()


def test_a_receipt_names_who_said_yes(clients: Clients) -> None:
    """If one client stages a candidate and another one promotes it, both are named."""
    asked = clients.intent("operate", "k9", intent="promote", rollout=clients.waiting)
    assert asked.document["by"] == "token operate"
    state = clients.world.here.state()
    rollout = next(each for each in state.rollouts if each.number == clients.waiting)

    clients.world.switches(rollout.id, "web-3", 4, "web-2")

    state, store = clients.world.here.state(), clients.world.store
    births = {build: read_birth(store, build) for build in serving_in(state, 4).values()}
    codes = {build: code_of(store, birth) for build, birth in births.items()}
    told = show_text(generation_details(state, 4, births, codes, {}))
    assert f"by {rollout.by}, promoted by token operate" in told
    page = clients.page("read", "/generations/4").body.decode()
    assert "promoted by token operate" in page
    history = clients.page("read", "/history").body.decode()
    assert history.count("token operate") >= 2


def test_a_refused_query_costs_no_process(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused query costs no process: a waiting worker refuses it, and it is not tried again."""
    assert clients.query("pages", "from page_hits").status == 200
    news: list[bool] = []
    take = WorkerPool.take_worker

    def counted(
        workers: WorkerPool, opened: OpenedSnapshot, *, is_new: bool = False
    ) -> QueryWorker:
        news.append(is_new)
        return take(workers, opened, is_new=is_new)

    monkeypatch.setattr(WorkerPool, "take_worker", counted)
    assert [clients.query("pages", "from by_page").status for _ in range(2)] == [403, 403]
    assert news == [False, False]
