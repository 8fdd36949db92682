"""A fork server whose children do not check their queries. Only the other locks remain.

These are DuckDB's lock-down and the kernel's.
"""

from __future__ import annotations

import sys

from kappa.serving.query.sandbox import fork_server, query_program


def main() -> int:
    query_program.ensure_allowed = lambda *_: None
    return fork_server.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
