"""DuckDB connections that can read the files of tables, on a disk or in a bucket.

DuckDB reads a bucket with its own S3 client, which is a DuckDB extension. DuckDB checks the
extension's signature. The extension is installed as a Python package, since DuckDB itself would
download it from a server. DuckDB accepts credentials only by an SQL command. Credentials from
Amazon's credential chain expire. So a connection that is kept open receives new credentials before
each query, if the credentials have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from kappa.base.duck import Connection, DuckError, Setting, open_connection
from kappa.base.errors import KappaError
from kappa.base.sql import quoted, text
from kappa.state.files.address import opened_buckets
from kappa.state.files.bucket import Bucket, is_plain_http, region_of
from kappa.state.files.credentials import Keys, keys_now

_PACKAGE = "duckdb_extension_httpfs"
# A server that is overloaded or restarted is asked again for some ten seconds.
_RETRIES = 8


class Access(NamedTuple):
    """The buckets that a DuckDB connection can read, and the credentials for these buckets.

    If there are no buckets, `keys` is None.
    """

    buckets: tuple[Bucket, ...] = ()
    keys: Keys | None = None


# The access of a new connection.
NO_ACCESS = Access()


def open_over_files(config: Mapping[str, Setting] | None = None) -> Connection:
    """Opens a DuckDB connection that can read the tables in all roots that this process has opened.

    Raises KappaError if DuckDB cannot read the buckets.
    """
    connection = open_connection(config)
    try:
        renew_access(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_exact(config: Mapping[str, Setting] | None = None) -> Connection:
    """Opens a DuckDB connection for queries whose rows will be stored.

    In this connection, a faulty optimization of DuckDB 1.5 is switched off: if a join contains a
    subquery with an order and a limit, DuckDB may apply the filter of the join before the limit,
    and the rows are wrong. https://github.com/duckdb/duckdb/pull/22963 fixes this.
    """
    connection = open_over_files(config)
    # Readers' queries keep this optimisation, since without it a limit sorts all rows.
    connection.execute("set disabled_optimizers = 'top_n'")
    return connection


def open_for_few_rows() -> Connection:
    """Opens a DuckDB connection in which as-of joins treat nulls correctly: null matches nothing.

    Otherwise, the connection is like that of `open_exact`. An as-of join in this connection
    compares all rows of one side with all rows of the other side, so the join is slow for many
    rows. For joins of more rows, see kappa/tables/views/nulls.py.
    """
    connection = open_exact()
    connection.execute("set asof_loop_join_threshold = 1000000")
    return connection


def renew_access(
    connection: Connection, access: Access = NO_ACCESS, *, remembers: bool = False
) -> Access:
    """Lets a DuckDB connection read all buckets that this process has opened.

    `access` contains the buckets and credentials that the connection has. Returns the buckets and
    credentials that the connection has after the call. If they are still the same, nothing is
    changed. With `remembers`, the connection caches information about files (such as sizes) for as
    long as it is open, instead of requesting the information for each query; this is correct
    because files never change. Raises KappaError if DuckDB cannot read buckets.
    """
    now = _access_now()
    if now == access or now.keys is None:
        return now
    for command in _access_commands(now.buckets, now.keys, remembers=remembers):
        try:
            connection.execute(command)
        except DuckError as error:
            # The error's text may quote the command, and a secret with the command.
            raise KappaError(
                f"DuckDB cannot be made to read buckets: {type(error).__name__}",
                hint="see that duckdb-extension-httpfs is of DuckDB's own version",
            ) from None
    return now


def _access_now() -> Access:
    buckets = opened_buckets()
    return Access(buckets, keys_now() if buckets else None)


def _access_commands(buckets: Sequence[Bucket], keys: Keys, *, remembers: bool) -> Iterator[str]:
    yield f"load {text(str(_extension_file()))}"
    yield f"set http_retries = {_RETRIES}"
    yield f"set enable_http_metadata_cache = {str(remembers).lower()}"
    for bucket in buckets:
        yield _secret_command(bucket, keys)


def _secret_command(bucket: Bucket, keys: Keys) -> str:
    storage = bucket.storage
    options = {
        "scope": f"{bucket.url}/",
        "region": region_of(storage),
        "url_style": "path" if storage.path_style else "vhost",
        "key_id": keys.key_id,
        "secret": keys.secret,
        **({} if keys.token is None else {"session_token": keys.token}),
    }
    if storage.endpoint is not None:
        options["endpoint"] = urlsplit(storage.endpoint).netloc
    listed = ", ".join(f"{option} {text(value)}" for option, value in options.items())
    return (
        f"create or replace secret {quoted(bucket.url)} "
        f"(type s3, {listed}, use_ssl {str(not is_plain_http(storage)).lower()})"
    )


def _extension_file() -> Path:
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise KappaError(
            "DuckDB cannot read a bucket without its extension httpfs",
            hint="pip install duckdb-extension-httpfs, of DuckDB's own version",
        )
    return next(Path(found.origin).parent.glob("extensions/*/httpfs.duckdb_extension"))
