"""An OpenID Connect issuer on 127.0.0.1: its document, its keys, and the tokens that it signs."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

Key = ECKey | RSAKey

AUDIENCE = "kappa"


class OidcIssuer:
    """A server of keys. `asked` has the paths of all requests; `is_away` refuses them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_away = False
        self.keys: list[Key] = [new_key("one")]
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                if issuer.is_away:
                    self.send_error(503)
                    return
                found = issuer.document(self.path)
                body = json.dumps(found).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def document(self, path: str) -> Any:
        """Returns the document at a path; None if nothing is there."""
        match path:
            case "/.well-known/openid-configuration":
                return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            case "/keys":
                return {"keys": [key.as_dict(private=False) for key in self.keys]}
            case _:
                return None

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Returns the claims of a person, with some of them changed; None leaves a claim out."""
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
        """Signs the claims of a person, by the newest key or by another."""
        key = key or self.keys[-1]
        header = {"alg": "RS256" if isinstance(key, RSAKey) else "ES256", "kid": key.kid}
        return jwt.encode(header, self.claims(**changes), key)

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def new_key(kid: str) -> ECKey:
    """Makes a key of a name."""
    return ECKey.generate_key("P-256", {"kid": kid, "use": "sig", "alg": "ES256"})
