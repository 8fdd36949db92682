"""Laws of sources over TLS: each certificate is checked, and nothing is sent if that fails."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from certificates import Authority
from collecting import Collector, collecting, ids_of, until, write_project
from pulled_sources import DocumentSource, SseSource, WebsocketSource, event, running
from typing_in import typist

from kappa.kafka.client import Log

TOKEN = "canary-of-a-token"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


def context(authority: Authority, name: str, *, expired: bool = False) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(*authority.issue(name, expired=expired))
    return found


def pull(name: str, topic: str, kind: str, port: int, ca: Path | None) -> str:
    scheme = "wss" if kind == "websocket" else "https"
    return f"""
[collect.pull.{name}]
url = "{scheme}://127.0.0.1:{port}/events"
topic = "{topic}"
kind = "{kind}"
every = "1s"
{"" if ca is None else f'ca = "{ca}"'}
"""


def why(collector: Collector, name: str) -> str:
    found = collector.ask("GET", "/collect/pulls").json()
    return next(str(each["why"]) for each in found if each["name"] == name)


@pytest.mark.jvm
def test_each_kind_is_fetched_by_tls_with_an_authority_of_its_own(
    log: Log, tmp_path: Path, topic: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA__COLLECT__PULL__STREAM__TOKEN", TOKEN)
    stream, document, feed = SseSource(), DocumentSource(), WebsocketSource()
    stream.tls = document.tls = feed.tls = context(authority, "server")
    document.put(f"[{event(1)}, {event(2)}]".encode(), '"1"')
    stream.add(event(3), event(4))
    with running(stream), running(document), running(feed):
        settings = "".join(
            (
                pull("stream", topic, "sse", stream.port, authority.ca),
                pull("document", topic, "poll", document.port, authority.ca),
                pull("feed", topic, "websocket", feed.port, authority.ca),
            )
        )
        project = write_project(tmp_path, topic, settings=settings)
        with collecting(project, log.bootstrap_servers):
            until(lambda: feed.is_heard, "a connection")
            feed.send(event(5), event(6))
            until(lambda: sorted(ids_of(log, topic)) == [1, 2, 3, 4, 5, 6], "all events")
    assert stream.asked[0]["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.jvm
def test_a_certificate_that_is_not_trusted_gets_no_token_and_is_a_sentence(
    log: Log, tmp_path: Path, topic: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STRANGE", "OLD", "FEED", "PLAIN"):
        monkeypatch.setenv(f"KAPPA__COLLECT__PULL__{name}__TOKEN", TOKEN)
    strange, old, plain, feed = SseSource(), SseSource(), SseSource(), WebsocketSource()
    strange.tls = feed.tls = context(authority, "strange")
    old.tls = context(authority, "old", expired=True)
    with running(strange), running(old), running(plain), running(feed):
        settings = "".join(
            (
                pull("strange", topic, "sse", strange.port, None),
                pull("old", topic, "sse", old.port, authority.ca),
                pull("plain", topic, "sse", plain.port, authority.ca),
                pull("feed", topic, "websocket", feed.port, None),
            )
        )
        project = write_project(tmp_path, topic, settings=settings)
        with collecting(project, log.bootstrap_servers) as collector:
            for name, part in (
                ("strange", "not trusted: unable to get local issuer certificate"),
                ("feed", "not trusted: unable to get local issuer certificate"),
                ("old", "not trusted: certificate has expired"),
                ("plain", "TLS has failed"),
            ):
                until(lambda name=name, part=part: part in why(collector, name), part)
    assert (strange.asked, old.asked, plain.asked, feed.asked) == ([], [], [], [])
    assert TOKEN not in (project / "collector.log").read_text()


@pytest.mark.parametrize(
    ("ca", "part"),
    [
        ("relative.pem", "give an absolute path"),
        ("/nowhere/ca.pem", "No such file"),
        (__file__, "no certificate in PEM"),
    ],
)
def test_a_file_that_is_no_authority_is_refused_at_the_start(
    tmp_path: Path,
    ca: str,
    part: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAPPA__KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    write_project(tmp_path, "visits", settings=pull("shop", "visits", "sse", 1, Path(ca)))

    kappa = typist(capsys, monkeypatch)
    kappa("--project", str(tmp_path), "collect").has(2, "collect.pull.shop.ca", part)
