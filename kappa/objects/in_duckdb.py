"""DuckDB's way to read files of a bucket: its own client of S3, an extension.

DuckDB checks the extension by its signature. It is installed as a package: by itself DuckDB would
fetch it from a server of its own. It takes credentials from nowhere but a command, so only those of
the environment are known to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from kappa.base.duck import Connection, DuckError
from kappa.base.errors import KappaError
from kappa.base.sql import quoted, text
from kappa.objects.address import opened_buckets
from kappa.objects.bucket import Bucket, is_plain, region_of

_PACKAGE = "duckdb_extension_httpfs"
# A server that is overloaded or started again is asked again for some ten seconds.
_RETRIES = 8
_CREDENTIALS = {
    "key_id": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


def let_read_buckets(connection: Connection) -> None:
    """Lets a DuckDB read below the roots in buckets that this process has opened.

    Raises KappaError if it cannot.
    """
    for bucket in opened_buckets():
        for command in _commands(bucket):
            try:
                connection.execute(command)
            except DuckError as error:
                # Its words may quote the command, and a secret with it.
                raise KappaError(
                    f"DuckDB cannot be made to read {bucket.url}: {type(error).__name__}",
                    hint="see that duckdb-extension-httpfs is of DuckDB's own version",
                ) from None


def _commands(bucket: Bucket) -> Iterator[str]:
    yield f"load {text(str(_extension()))}"
    yield f"set http_retries = {_RETRIES}"
    storage = bucket.storage
    options = {
        "scope": f"{bucket.url}/",
        "region": region_of(storage),
        "url_style": "path" if storage.path_style else "vhost",
        **{option: os.environ[name] for option, name in _CREDENTIALS.items() if name in os.environ},
    }
    if storage.endpoint is not None:
        options["endpoint"] = urlsplit(storage.endpoint).netloc
    listed = ", ".join(f"{option} {text(value)}" for option, value in options.items())
    yield (
        f"create or replace secret {quoted(bucket.url)} "
        f"(type s3, {listed}, use_ssl {str(not is_plain(storage)).lower()})"
    )


def _extension() -> Path:
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise KappaError(
            "DuckDB cannot read a bucket without its extension httpfs",
            hint="pip install duckdb-extension-httpfs, of DuckDB's own version",
        )
    return next(Path(found.origin).parent.glob("extensions/*/httpfs.duckdb_extension"))
