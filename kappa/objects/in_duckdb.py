"""DuckDB over the files of tables, on a disk or in a bucket.

A bucket is read by DuckDB's own client of S3, an extension.

DuckDB checks the extension by its signature. It is installed as a package: by itself DuckDB would
fetch it from a server of its own. It takes credentials from nowhere but a command, so only those of
the environment are known to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from kappa.base.duck import Connection, DuckError, Setting, open_connection
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
_NEEDED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def open_over_files(config: Mapping[str, Setting] | None = None) -> Connection:
    """Opens a DuckDB that reads files of tables, wherever the roots of this process are.

    Raises KappaError if it cannot.
    """
    connection = open_connection(config)
    try:
        let_read_buckets(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_exact(config: Mapping[str, Setting] | None = None) -> Connection:
    """Opens a DuckDB over files whose rows are stored: without an optimisation that spoils some.

    DuckDB 1.5 moves a join's filter below the order and limit of a subquery that it joins.
    Source: https://github.com/duckdb/duckdb/pull/22963, which mends it.
    """
    connection = open_over_files(config)
    # Without it, a limit sorts all rows, so queries of readers have it.
    connection.execute("set disabled_optimizers = 'top_n'")
    return connection


def open_for_few_rows() -> Connection:
    """Opens a DuckDB as `open_exact` does, whose as-of joins treat nulls as SQL does.

    They compare all rows of one side with all of the other. `kappa/parsed/nulls.py` is for more.
    """
    connection = open_exact()
    connection.execute("set asof_loop_join_threshold = 1000000")
    return connection


def let_read_buckets(connection: Connection, *, remembers: bool = False) -> None:
    """Lets a DuckDB read below the roots in buckets that this process has opened.

    One that `remembers` asks once what a file is, which never changes, and not for each query; it
    forgets none. Raises KappaError if it cannot.
    """
    for command in _commands(opened_buckets(), remembers=remembers):
        try:
            connection.execute(command)
        except DuckError as error:
            # Its words may quote the command, and a secret with it.
            raise KappaError(
                f"DuckDB cannot be made to read buckets: {type(error).__name__}",
                hint="see that duckdb-extension-httpfs is of DuckDB's own version",
            ) from None


def _commands(buckets: Sequence[Bucket], *, remembers: bool) -> Iterator[str]:
    if buckets:
        yield f"load {text(str(_extension()))}"
        yield f"set http_retries = {_RETRIES}"
        yield f"set enable_http_metadata_cache = {str(remembers).lower()}"
        yield from map(_secret, buckets)


def _secret(bucket: Bucket) -> str:
    missing = [name for name in _NEEDED if name not in os.environ]
    if missing:
        raise KappaError(
            f"DuckDB cannot read {bucket.url}: {missing[0]} is not in the environment",
            hint=f"set {' and '.join(_NEEDED)}: DuckDB takes no credentials of a machine's role",
        )
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
    return (
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
