"""A small identity provider on 127.0.0.1. It gives tokens to clients that know their secret."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote

from http_server import QuietHandler

CLIENT, CLIENT_SECRET = "kappa-client", "s3cret-of-the-client"


class IdentityProvider:
    """A server that issues tokens (OAuth's client credentials), and the keys that verify them."""

    def __init__(self, folder: Path) -> None:
        self._key = folder / "tokens.key"
        _openssl("genpkey", "-algorithm", "RSA", "-out", str(self._key))
        modulus = _openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode()
        number = bytes.fromhex(modulus.strip().removeprefix("Modulus="))
        self._keys = {
            "keys": [
                {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256"}
                | {"n": _text(number), "e": "AQAB"}
            ]
        }
        provider = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                self.send_json(200, provider._keys)

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                asked = parse_qs(self.rfile.read(size).decode())
                user, _, secret = (
                    base64.b64decode(self.headers.get("Authorization", "").partition(" ")[2])
                    .decode()
                    .partition(":")
                )
                if (unquote(user), unquote(secret)) != (CLIENT, CLIENT_SECRET):
                    self.send_json(401, {"error": "invalid_client"})
                    return
                token = provider._token(asked.get("scope", [""])[0])
                self.send_json(
                    200, {"access_token": token, "token_type": "Bearer", "expires_in": 300}
                )

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.keys_url, self.token_url = f"{self.url}/keys", f"{self.url}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _token(self, scope: str) -> str:
        now = int(time.time())
        head = {"alg": "RS256", "kid": "one", "typ": "JWT"}
        claims: dict[str, object] = {"iss": self.url, "aud": "kafka", "sub": CLIENT}
        # An empty scope would be a malformed one.
        claims |= {"iat": now, "exp": now + 300, **({"scope": scope} if scope else {})}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, claims))
        made = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(self._key)],
            input=signed.encode(),
            capture_output=True,
            check=True,
        )
        return f"{signed}.{_text(made.stdout)}"


def _openssl(*arguments: str) -> bytes:
    return subprocess.run(["openssl", *arguments], capture_output=True, check=True).stdout


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
