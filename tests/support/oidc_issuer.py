"""An OpenID Connect issuer on 127.0.0.1: its document, its keys, and its signed tokens."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from http_server import QuietHandler
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

Key = ECKey | RSAKey

AUDIENCE, CLIENT_SECRET = "kappa", "s3cret-of-the-client"


class OidcIssuer:
    """A server of keys. `asked` contains the paths of all requests; `is_away` refuses requests."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.asked: list[str] = []
        self.is_away = False
        self.keys: list[Key] = [new_key("one")]
        self._codes: dict[str, tuple[dict[str, str], dict[str, Any]]] = {}
        issuer = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                if issuer.is_away:
                    self.send_error(503)
                    return
                if self.path.startswith("/authorize?"):
                    # Whoever comes is Alice, and is sent back at once.
                    brought = issuer.signs_in(f"{issuer.url}{self.path}", aud=AUDIENCE)
                    back = dict(parse_qsl(urlsplit(self.path).query))["redirect_uri"]
                    self.send_response(302)
                    self.send_header("Location", f"{back}?{urlencode(brought)}")
                    self.end_headers()
                    return
                found = issuer.document(self.path)
                self.send_json(200 if found is not None else 404, found)

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                asked = dict(parse_qsl(self.rfile.read(size).decode()))
                login = self.headers.get("Authorization", "")
                self.send_json(*issuer.exchanged(asked, login))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def document(self, path: str) -> Any:
        """Returns the document at a path, or None if there is none."""
        match path:
            case "/.well-known/openid-configuration":
                return {
                    "issuer": self.url,
                    "jwks_uri": f"{self.url}/keys",
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                }
            case "/keys":
                return {"keys": [key.as_dict(private=False) for key in self.keys]}
            case _:
                return None

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Returns the claims of a person, with `changes`; a claim that is None is left out."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "1",
            "email": "alice@example.com",
            "groups": ["analysts"],
            "iat": now,
            "exp": now + 300,
        } | changes
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, key: Key | None = None, **changes: Any) -> str:
        """Signs the claims of a person, with the newest key or with `key`."""
        key = key or self.keys[-1]
        header = {"alg": "RS256" if isinstance(key, RSAKey) else "ES256", "kid": key.kid}
        return jwt.encode(header, self.claims(**changes), key)

    def signs_in(self, url: str, **changes: Any) -> dict[str, str]:
        """Signs in a person who was sent to `url`.

        Returns the parameters with which the browser comes back.
        """
        asked = dict(parse_qsl(urlsplit(url).query))
        assert url.startswith(f"{self.url}/authorize?")
        assert (asked["response_type"], asked["client_id"]) == ("code", AUDIENCE)
        code = secrets.token_urlsafe(8)
        self._codes[code] = asked, {"nonce": asked["nonce"]} | changes
        return {"code": code, "state": asked["state"]}

    def exchanged(self, asked: dict[str, str], login: str) -> tuple[int, dict[str, str]]:
        """Exchanges a code for a token, once, for the client that began the sign-in."""
        begun, changes = self._codes.pop(asked.get("code", ""), ({}, {}))
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        expected = base64.b64encode(f"{AUDIENCE}:{CLIENT_SECRET}".encode()).decode()
        is_right = (
            begun.get("code_challenge") == challenge
            and begun.get("redirect_uri") == asked.get("redirect_uri")
            and login == f"Basic {expected}"
        )
        return (200, {"id_token": self.token(**changes)}) if is_right else (400, {})

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def new_key(kid: str) -> ECKey:
    """Makes a key with this id."""
    return ECKey.generate_key("P-256", {"kid": kid, "use": "sig", "alg": "ES256"})
