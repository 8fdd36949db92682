"""A handler of HTTP requests, for servers that tests run in their own process."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """A handler of requests that prints nothing."""

    def send(self, status: int, body: bytes, **headers: str) -> None:
        """Sends an answer. Each `_` in a header's name is sent as `-`."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, status: int, document: Any) -> None:
        """Sends a document as the answer."""
        self.send(status, json.dumps(document).encode(), Content_Type="application/json")

    def log_message(self, *_: object) -> None:
        """Prints nothing."""
