"""Identification of people by OpenID Connect, with tokens that an issuer has signed.

Each token is checked for its issuer, audience, time and signature. The issuer's keys are fetched
for the first token, and cached. If a token was signed with an unknown key, the keys are fetched
again, but at most once every few seconds, so that forged tokens do not burden the issuer. The keys
are also fetched again each hour, so that a withdrawn key becomes invalid. While the issuer does not
answer, the cached keys are used for up to a day.

Only signatures by a private key are accepted. A token without a signature, or signed with a shared
secret, is refused, whatever its header says.

On the page, people sign in at the issuer, with a code that this server exchanges for a token
(authorization code flow, with PKCE).

Sources: OpenID Connect Core 1.0, 3.1; OpenID Connect Discovery 1.0; RFC 7519; RFC 7636; RFC 8725.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from kappa.base.errors import KappaError, SettingsError, Unreachable
from kappa.base.sections import AccessSettings, GrantSettings, Role
from kappa.serving.access.roles import Identity, ensure_grant, identity_of

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

# Signatures by a private key alone.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_KEY_KINDS = frozenset({"RSA", "EC"})
_DISCOVERY = "/.well-known/openid-configuration"
# By how much the clocks of the issuer and this machine may differ.
_LEEWAY_SECONDS = 60
_FRESH_SECONDS, _KEPT_SECONDS, _PAUSE_SECONDS = 3600.0, 86_400.0, 10.0
_TIMEOUT_SECONDS, _MOST_BYTES = 10.0, 1 << 20
_LONGEST_NAME = 200
_MOST_CHARACTERS = 1 << 14


class TokenRefused(KappaError):
    """The error for a refused token of the issuer, or for a refused sign-in at the issuer."""

    status = 401


class Issuer:
    """The issuer whose tokens identify people. Any thread may use the object."""

    def __init__(
        self,
        settings: AccessSettings,
        *,
        clock: Callable[[], float] = time.time,
        fetch: Callable[[str], Any] | None = None,
    ) -> None:
        """Checks the settings of the issuer, and stores the rights of people and groups.

        `fetch` returns the JSON document at a URL. Raises SettingsError if the settings are not
        valid.
        """
        self._settings, self._oidc = settings, settings.oidc
        self._clock, self._fetch = clock, fetch or _fetched_json
        self._lock = threading.Lock()
        self._keys: KeySet | None = None
        self._known_document: Mapping[str, Any] | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._check_settings()

    @property
    def name(self) -> str:
        """Returns the issuer's URL and the audience, joined by a space."""
        return f"{self._oidc.issuer} {self._oidc.audience}"

    @property
    def host(self) -> str:
        """Returns the host name of the issuer, for display."""
        return urlsplit(self._oidc.issuer).netloc

    def identity(self, bearer: str) -> Identity:
        """Returns the person whom a token identifies. Blocks while keys are fetched.

        Raises TokenRefused if the token is wrong, and Unreachable if the issuer does not answer.
        """
        return self.identity_by_claims(self.claims(bearer))

    def claims(self, bearer: str, audience: str | None = None) -> Mapping[str, Any]:
        """Checks a token, and returns its claims. Blocks while keys are fetched.

        `audience` replaces the audience in the settings. Raises the errors of `identity`.
        """
        from joserfc import jwt  # noqa: PLC0415  # only a server that has an issuer needs it
        from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError  # noqa: PLC0415

        if len(bearer) > _MOST_CHARACTERS:
            raise _wrong("it is too long")
        try:
            try:
                token = jwt.decode(bearer, self._issuer_keys(), algorithms=_ALGORITHMS)
            except InvalidKeyIdError:
                token = jwt.decode(bearer, self._issuer_keys(anew=True), algorithms=_ALGORITHMS)
            registry = jwt.JWTClaimsRegistry(
                now=lambda: int(self._clock()),
                leeway=_LEEWAY_SECONDS,
                iss={"essential": True, "value": self._oidc.issuer},
                aud={"essential": True, "value": audience or self._oidc.audience},
                exp={"essential": True},
            )
            registry.validate(token.claims)
        except ExpiredTokenError:
            raise _wrong("it has expired") from None
        except (
            JoseError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            RecursionError,
        ) as error:
            # A stranger has written the token, and the reason of a library may have parts of it.
            raise _wrong(f"its {_part_of(error)} is wrong") from None
        return token.claims

    @property
    def signs_people_in(self) -> bool:
        """Returns True if people can sign in at the issuer from a page of this server."""
        return bool(self._oidc.client)

    def sign_in_url(self, back: str, *, state: str, nonce: str, verifier: str) -> str:
        """Returns the issuer's URL at which a person signs in. May block until the issuer answers.

        The issuer redirects the person to the URL `back`, with `state` and a code. `verifier` is
        the secret of PKCE, and `nonce` is repeated in the token. Raises Unreachable if the issuer
        does not answer.
        """
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        asked = {
            "response_type": "code",
            "client_id": self._oidc.client,
            "redirect_uri": back,
            "scope": "openid profile email",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        url = self._endpoint("authorization_endpoint")
        return f"{url}{'&' if '?' in url else '?'}{urlencode(asked)}"

    def claims_of_code(
        self, code: str, back: str, *, nonce: str, verifier: str
    ) -> Mapping[str, Any]:
        """Exchanges the code that a person got by signing in, and returns the claims of a token.

        `back` is the URL to which the issuer has redirected the person. Blocks until the issuer
        answers. Raises TokenRefused if the code or the token is wrong, and Unreachable if the
        issuer does not answer.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self._oidc.client,
            "code_verifier": verifier,
        }
        request = urllib.request.Request(  # noqa: S310  # see _ensure_private
            self._endpoint("token_endpoint"), urlencode(form).encode()
        )
        if self._oidc.client_secret:
            login = f"{quote(self._oidc.client)}:{quote(self._oidc.client_secret)}".encode()
            request.add_header("Authorization", f"Basic {base64.b64encode(login).decode()}")
        try:
            token = _fetched_json(request)["id_token"]
        except urllib.error.HTTPError as error:
            error.close()
            raise _wrong(f"it answered {error.code} to the code") from None
        except (KeyError, TypeError, ValueError):
            raise _wrong("its answer to the code has no token") from None
        except OSError as error:
            raise self._away(str(getattr(error, "reason", error))) from error
        claims = self.claims(str(token), self._oidc.client)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _wrong("it is of another sign-in")
        return claims

    def identity_by_claims(self, claims: Mapping[str, Any]) -> Identity:
        """Returns the person whom the claims of a checked token identify.

        Raises TokenRefused if the claims have no valid name.
        """
        return self.identity_of_person(*self.person(claims))

    def person(self, claims: Mapping[str, Any]) -> tuple[str, list[str]]:
        """Returns a person's name and groups, from the claims of a checked token.

        Raises TokenRefused if the claims have no valid name.
        """
        name = claims.get(self._oidc.name)
        if not isinstance(name, str) or not name.isprintable() or not name.strip():
            raise _wrong(f"its claim {self._oidc.name} names nobody")
        if len(name) > _LONGEST_NAME:
            raise _wrong(f"its claim {self._oidc.name} is too long")
        if self._oidc.name == "email" and claims.get("email_verified", True) not in {True, "true"}:
            raise _wrong("its email is not verified")
        groups = claims.get(self._oidc.groups, ())
        groups = [groups] if isinstance(groups, str) else groups
        return name, [each for each in groups if isinstance(each, str)] if _is_list(groups) else []

    def identity_of_person(self, name: str, groups: Iterable[str]) -> Identity:
        """Returns the identity of a person, with the rights granted in the settings.

        The rights are those of the person `name`, and those of the groups in `groups`.
        """
        mine = (self._settings.groups.get(each) for each in groups)
        grants = [each for each in (self._settings.people.get(name), *mine) if each is not None]
        return _joined_identity(name, grants)

    def _issuer_keys(self, *, anew: bool = False) -> KeySet:
        """Returns the keys of the issuer, and fetches them first if needed.

        The keys are fetched again if they are old, or if `anew` is True.
        """
        keys, age = self._keys, self._clock() - self._fetched_at
        if keys is not None and age <= _FRESH_SECONDS and not anew:
            return keys
        # Whoever has keys does not wait for another thread that fetches newer ones.
        if not self._lock.acquire(blocking=keys is None or age > _KEPT_SECONDS):
            assert keys is not None, "without keys the lock is waited for"
            return keys
        try:
            return self._fetched_keys(anew=anew)
        finally:
            self._lock.release()

    def _fetched_keys(self, *, anew: bool) -> KeySet:
        from joserfc.jwk import KeySet  # noqa: PLC0415

        at = self._clock()
        age = at - self._fetched_at
        if (anew or age > _FRESH_SECONDS) and at - self._tried_at > _PAUSE_SECONDS:
            self._tried_at = at
            try:
                document = self._fetch(self._document()["jwks_uri"])
                usable = [each for each in document["keys"] if each.get("kty") in _KEY_KINDS]
                self._keys = KeySet.import_key_set({"keys": usable})
                self._fetched_at = at
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                if age > _KEPT_SECONDS:
                    raise self._away(f"it has no keys that can be read: {error}") from error
            except OSError as error:
                if age > _KEPT_SECONDS:
                    raise self._away(str(getattr(error, "reason", error))) from error
        if self._keys is None or at - self._fetched_at > _KEPT_SECONDS:
            raise self._away("it was asked just now")
        return self._keys

    def _document(self) -> Mapping[str, Any]:
        document = self._fetch(self._oidc.issuer.rstrip("/") + _DISCOVERY)
        if document["issuer"] != self._oidc.issuer:
            raise ValueError("its document names another issuer")
        _ensure_private(document["jwks_uri"])
        self._known_document = document
        found: Mapping[str, Any] = document
        return found

    def _endpoint(self, name: str) -> str:
        """Returns the URL of an endpoint of the issuer.

        Raises Unreachable if the issuer does not answer, or does not name the endpoint.
        """
        try:
            url = str((self._known_document or self._document())[name])
            _ensure_private(url)
        except (KeyError, TypeError, ValueError) as error:
            raise self._away(f"its document cannot be used: {error}") from error
        except OSError as error:
            raise self._away(str(getattr(error, "reason", error))) from error
        return url

    def _away(self, why: str) -> Unreachable:
        return Unreachable(
            f"the issuer {self._oidc.issuer} could not be asked: {why}",
            hint="see whether this machine reaches it; tokens of Kappa work meanwhile",
        )

    def _check_settings(self) -> None:
        try:
            _ensure_private(self._oidc.issuer)
        except ValueError as error:
            raise SettingsError(
                f"setting access.oidc.issuer is {self._oidc.issuer}: {error}",
                hint="give the issuer's URL as its tokens have it in iss: https://HOST/PATH",
            ) from None
        if not self._oidc.audience:
            raise SettingsError(
                "access.oidc.issuer is set, and access.oidc.audience is not",
                hint="give what the issuer's tokens for this server have as aud, such as the "
                "client's id",
            )
        for kind, grants in (("people", self._settings.people), ("groups", self._settings.groups)):
            for name, each in grants.items():
                ensure_grant(f"access.{kind}.{name}", each.roles, each.tables, each.topics)


def _joined_identity(name: str, grants: Iterable[GrantSettings]) -> Identity:
    """Returns the identity of a person, with the rights of all `grants` together. Pure."""
    grants = tuple(grants)
    roles = {role for each in grants for role in each.roles}
    reading = [each.tables for each in grants if Role.READ in each.roles]
    sending = [each.topics for each in grants if Role.COLLECT in each.roles]
    above = roles & {Role.STAGE, Role.OPERATE, Role.ADMIN}
    tables = [] if above or not all(reading) else [each for some in reading for each in some]
    topics = (
        []
        if Role.ADMIN in roles or not all(sending)
        else [each for some in sending for each in some]
    )
    return identity_of(name, roles, tables, topics)


def _is_list(groups: object) -> bool:
    return isinstance(groups, list)


def _wrong(why: str) -> TokenRefused:
    return TokenRefused(
        f"the issuer's token was refused: {why}", hint="sign in anew, and send the new token"
    )


def _part_of(error: Exception) -> str:
    """Returns the name of the part of a token that is wrong, such as `signature`.

    `error` is the error that the check of the token has raised.
    """
    claim = getattr(error, "claim", None)
    if isinstance(claim, str):
        return f"claim {claim}"
    return {"bad_signature": "signature", "unsupported_algorithm": "algorithm"}.get(
        str(getattr(error, "error", "")), "form or key"
    )


def _ensure_private(url: str) -> None:
    """Raises ValueError if a third party could change the content at a URL.

    A URL is accepted if it begins with https://, or if it is an http:// URL of this machine.
    """
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and parts.hostname in {"127.0.0.1", "::1", "localhost"}:
        return
    raise ValueError("it must begin with https://")


def _fetched_json(asked: str | urllib.request.Request) -> Any:
    """Sends a request, and returns the answer as a JSON value.

    Raises OSError if the request fails, and ValueError if the answer is too long or not JSON.
    """
    request = urllib.request.Request(asked) if isinstance(asked, str) else asked  # noqa: S310  # see _ensure_private
    request.add_header("Accept", "application/json")
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
        content = answer.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError("its answer is too long")
    return json.loads(content)
