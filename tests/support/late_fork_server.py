"""A fork server whose first answer comes late, after the server has given up that child."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from socket import socket

from kappa.serving.query.sandbox import fork_server

LATE_SECONDS = 3.0


def main() -> int:
    answer = fork_server.socket.send_fds
    answered = 0

    def late(control: socket, texts: Iterable[bytes], handles: list[int]) -> int:
        nonlocal answered
        answered += 1
        if answered == 1:
            time.sleep(LATE_SECONDS)
        return answer(control, list(texts), handles)

    fork_server.socket.send_fds = late
    return fork_server.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
