"""People known by an issuer: a real server of keys, right tokens, and all kinds of wrong tokens."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from oidc_issuer import AUDIENCE, OidcIssuer, new_key

from kappa.base.errors import SettingsError, Unreachable
from kappa.base.sections import AccessSettings, GrantSettings, OidcSettings, Role
from kappa.serving.access.oidc import Issuer, TokenRefused
from kappa.serving.access.roles import Act, may


@pytest.fixture
def provider() -> Iterator[OidcIssuer]:
    with OidcIssuer() as provider:
        yield provider


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def issuer_of(
    provider: OidcIssuer,
    clock: Callable[[], float] = time.time,
    kind: type[Issuer] = Issuer,
) -> Issuer:
    return kind(
        AccessSettings(
            oidc=OidcSettings(issuer=provider.url, audience=AUDIENCE),
            people={"alice@example.com": GrantSettings(roles=[Role.STAGE])},
            groups={
                "analysts": GrantSettings(roles=[Role.READ], tables=["page_hits"]),
                "senders": GrantSettings(roles=[Role.COLLECT], topics=["visits"]),
                "readers": GrantSettings(roles=[Role.READ], tables=["revenue"]),
            },
        ),
        clock=clock,
    )


def test_a_person_has_the_roles_of_name_and_groups(provider: OidcIssuer) -> None:
    """A person may do exactly what any of the person's grants allows."""
    issuer = issuer_of(provider)

    alice = issuer.identity(provider.token())
    bob = issuer.identity(provider.token(email="bob@example.com", groups=["analysts", "readers"]))
    carol = issuer.identity(provider.token(email="carol@example.com", groups=["senders"]))
    nobody = issuer.identity(provider.token(email="eve@example.com", groups=["others"]))

    assert (alice.name, alice.tables.names) == ("alice@example.com", None)
    assert may(alice, Act.STAGE)
    assert not may(alice, Act.PROMOTE)
    assert bob.tables.names == {"page_hits", "revenue"}
    assert may(carol, Act.COLLECT, "visits")
    assert not may(carol, Act.READ)
    assert not any(may(nobody, act) for act in Act)


def test_keys_are_fetched_once_and_anew_if_one_is_new(provider: OidcIssuer) -> None:
    """A rotation of keys needs no restart, and tokens with invented keys cause no requests."""
    clock = Clock()
    issuer = issuer_of(provider, clock)
    issuer.identity(provider.token())
    issuer.identity(provider.token())
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]

    provider.keys.append(new_key("two"))
    with pytest.raises(TokenRefused):
        issuer.identity(provider.token())
    assert len(provider.asked) == 2
    clock.ahead = 20
    assert issuer.identity(provider.token()).name == "alice@example.com"
    assert issuer.identity(provider.token(provider.keys[0])).name == "alice@example.com"
    made_up = new_key("made-up")
    for _ in range(5):
        with pytest.raises(TokenRefused):
            issuer.identity(provider.token(made_up))
    assert len(provider.asked) == 4


def test_a_key_that_was_withdrawn_ends(provider: OidcIssuer) -> None:
    """Keys are fetched again each hour, so that a stolen key is not useful for long."""
    clock = Clock()
    issuer, stolen = issuer_of(provider, clock), provider.keys[0]
    issuer.identity(provider.token(stolen))
    provider.keys = [new_key("two")]

    clock.ahead = 3700
    with pytest.raises(TokenRefused):
        issuer.identity(provider.token(stolen, exp=int(time.time()) + 9999))


def test_while_the_issuer_is_away_its_keys_are_used_for_a_day(provider: OidcIssuer) -> None:
    """An issuer that fails for an hour locks nobody out; after a day its keys are not trusted."""
    clock = Clock()
    issuer = issuer_of(provider, clock)
    later = int(time.time()) + 999_999
    issuer.identity(provider.token())
    provider.is_away = True

    clock.ahead = 7200
    assert issuer.identity(provider.token(exp=later)).name == "alice@example.com"
    clock.ahead = 90_000
    with pytest.raises(Unreachable, match="could not be asked"):
        issuer.identity(provider.token(exp=later))


def test_nobody_waits_for_an_issuer_that_hangs(provider: OidcIssuer) -> None:
    """While a thread fetches newer keys, other people are admitted with the known keys."""
    fetching, go_on = threading.Event(), threading.Event()

    class Hanging(Issuer):
        def _document(self) -> Mapping[str, Any]:
            if provider.is_away:
                fetching.set()
                assert go_on.wait(30)
            return super()._document()

    clock = Clock()
    issuer = issuer_of(provider, clock, Hanging)
    issuer.identity(provider.token())
    provider.is_away, clock.ahead = True, 20
    made_up = provider.token(new_key("made-up"))

    def guess() -> None:
        with pytest.raises(TokenRefused):
            issuer.identity(made_up)

    first = threading.Thread(target=guess)
    first.start()
    try:
        assert fetching.wait(30)
        assert issuer.identity(provider.token()).name == "alice@example.com"
        with pytest.raises(TokenRefused):
            issuer.identity(provider.token(new_key("other")))
    finally:
        go_on.set()
        first.join()


def test_an_issuer_that_was_never_reached_is_said(provider: OidcIssuer) -> None:
    """Nobody is admitted while the issuer's keys are unknown, and the error says so."""
    provider.is_away = True
    issuer = issuer_of(provider)

    for _ in range(2):
        with pytest.raises(Unreachable, match="could not be asked"):
            issuer.identity(provider.token())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"exp": 1_000_000_000}, "it has expired"),
        ({"exp": None}, "exp"),
        ({"nbf": 9_999_999_999}, "nbf"),
        ({"iss": "https://evil.example"}, "claim iss"),
        ({"iss": None}, "claim iss"),
        ({"aud": "another"}, "claim aud"),
        ({"aud": ["another", "third"]}, "claim aud"),
        ({"aud": None}, "claim aud"),
        ({"email": None}, "claim email names nobody"),
        ({"email": ""}, "claim email names nobody"),
        ({"email": ["alice@example.com"]}, "claim email names nobody"),
        ({"email": "a\nb"}, "claim email names nobody"),
        ({"email": "a" * 300}, "claim email is too long"),
        ({"email_verified": False}, "email is not verified"),
        ({"email_verified": "false"}, "email is not verified"),
    ],
)
def test_claims_that_are_wrong_let_nobody_in(
    provider: OidcIssuer, changes: dict[str, object], told: str
) -> None:
    """Issuer, audience, time and name are each checked, even if the signature is right."""
    with pytest.raises(TokenRefused, match=told):
        issuer_of(provider).identity(provider.token(**changes))


def test_a_key_of_rsa_counts_too(provider: OidcIssuer) -> None:
    """RS256 signatures are accepted, because most issuers use them."""
    key = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
    provider.keys.append(key)

    assert issuer_of(provider).identity(provider.token(key)).name == "alice@example.com"


def test_an_audience_among_others_is_ours(provider: OidcIssuer) -> None:
    """A token may be for several servers."""
    token = provider.token(aud=["another", AUDIENCE])

    assert issuer_of(provider).identity(token).name == "alice@example.com"


def unsigned(provider: OidcIssuer, alg: str) -> str:
    parts = ({"alg": alg, "kid": "one"}, provider.claims())
    texts = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts)
    return f"{b'.'.join(texts).decode()}."


def signed_by_public_key(provider: OidcIssuer, alg: str = "HS256") -> str:
    """Signs with the public key as if it were a shared secret, as in CVE-2015-9235."""
    public = provider.keys[0].as_pem(private=False)
    signed = unsigned(provider, alg).removesuffix(".")
    signature = hmac.digest(public, signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def tampered(provider: OidcIssuer) -> str:
    head, _, signature = provider.token().split(".")
    claims = json.dumps(provider.claims(email="root@example.com")).encode()
    return f"{head}.{base64.urlsafe_b64encode(claims).rstrip(b'=').decode()}.{signature}"


def key_in_header(provider: OidcIssuer) -> str:
    key = new_key("one")
    header = {"alg": "ES256", "kid": "one", "jwk": key.as_dict(private=False)}
    return jwt.encode(header, provider.claims(), key)


@pytest.mark.parametrize(
    "forge",
    [
        lambda provider: unsigned(provider, "none"),
        lambda provider: unsigned(provider, "None"),
        lambda provider: unsigned(provider, "RS256"),
        signed_by_public_key,
        tampered,
        key_in_header,
        lambda provider: provider.token(new_key("one")),
        lambda _: "a.b.c",
        lambda _: "..",
        lambda _: f"{'a' * 20_000}.b.c",
        lambda provider: provider.token()[:-4],
        lambda provider: provider.token() + "é",
        *(
            lambda _, header=header: f"{base64.urlsafe_b64encode(header).decode()}.b.c"
            for header in (
                *(b"[" * 9_000, b'{"x":' * 2_000, b"[]", b"1", b"null", b'"alg"', b"\xff", b"{}"),
                *(b'{"alg":[]}', b'{"alg":{}}', b'{"alg":"ES256","kid":[]}', b'{"alg":1e999}'),
                *(b'{"alg":"ES256","kid":{"a":1}}', b'{"alg":"ES256","crit":["a"]}'),
                *(
                    b'{"alg":"ES256","kid":"one","b64":false,"crit":["b64"]}',
                    b'{"alg":"\xed\xa0\x80"}',
                ),
            )
        ),
    ],
)
def test_a_forged_token_lets_nobody_in(
    provider: OidcIssuer, forge: Callable[[OidcIssuer], str]
) -> None:
    """Only a signature by a key of the issuer counts, whatever the header says."""
    issuer = issuer_of(provider)

    with pytest.raises(TokenRefused):
        issuer.identity(forge(provider))
    assert issuer.identity(provider.token()).name == "alice@example.com"


def test_a_shared_secret_among_the_keys_is_no_key(provider: OidcIssuer) -> None:
    """A shared secret that an issuer publishes by mistake is not accepted as a key."""
    secret = OctKey.import_key("0123456789abcdef0123456789abcdef", {"kid": "secret"})
    provider.keys.append(secret)  # type: ignore[arg-type]  # on purpose
    header = {"alg": "HS256", "kid": "secret"}

    with pytest.raises(TokenRefused):
        issuer_of(provider).identity(jwt.encode(header, provider.claims(), secret))


def test_a_document_of_another_issuer_is_refused(
    provider: OidcIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document at the issuer's address must be the issuer's own."""
    found = {"issuer": "https://evil.example", "jwks_uri": f"{provider.url}/keys"}
    monkeypatch.setattr(provider, "document", lambda _path: found)

    with pytest.raises(Unreachable, match="another issuer"):
        issuer_of(provider).identity(provider.token())


@pytest.mark.parametrize(
    ("oidc", "told"),
    [
        (OidcSettings(issuer="http://login.example", audience="a"), "begin with https"),
        (OidcSettings(issuer="login.example", audience="a"), "begin with https"),
        (OidcSettings(issuer="https://login.example"), "access.oidc.audience is not"),
    ],
)
def test_settings_that_trust_anybody_are_refused(oidc: OidcSettings, told: str) -> None:
    """Without TLS, attackers could supply keys; without an audience, any app's token is valid."""
    with pytest.raises(SettingsError, match=told):
        Issuer(AccessSettings(oidc=oidc))
