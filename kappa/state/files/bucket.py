"""Objects below a prefix of a bucket, by the S3 protocol.

A request whose answer is lost is sent again. A server that is away or overloaded is asked again for
half a minute, or as long as the process has patience (`patient`). After a server has stayed away
for this long, each further request first checks whether the server is back. A server answers a put
once the object is on several disks, so nothing needs a sync.

Credentials come from the environment, or from the usual chain (credentials.py). No value here holds
credentials, so no error can show them. obstore's errors are pages: here each becomes a sentence.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from obstore import copy, get_range, head, list_with_delimiter
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from kappa.base.errors import KappaError, SettingsError
from kappa.base.sections import StorageSettings, without_secrets
from kappa.state.files.credentials import (
    IN_ENVIRONMENT,
    WAYS,
    keys_for_requests,
    keys_of_environment,
)

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta, PutMode


_Answer = TypeVar("_Answer")
_SCHEME = "s3://"
_REGION = "us-east-1"
# The longest time between two attempts.
_LONGEST_PAUSE = timedelta(seconds=2)
_PAUSE_SECONDS = 0.2
AT_ONCE = 1_000  # objects that a request deletes
# Bytes that arrive within one request's time on a slow network.
_PIECE = 8 << 20
# The length of bucket names (docs.aws.amazon.com, "Bucket naming rules").
_LEAST, _MOST = 3, 63
# Names of buckets, and a prefix whose URL is itself.
_ROOT = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<prefix>[A-Za-z0-9_./=-]+)"
)
# The name of no object: a request for this name shows whether a server answers.
_PROBE = ".kappa-is-anybody-there"
# Of obstore and delta-rs, but not of DuckDB.
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
# A server's own word for why it refuses a request.
_CODE = re.compile(r"<Code>(\w+)</Code>")
# As obstore quotes an error of `keys_for_requests`.
_NO_KEYS = re.compile(r"credential provider: KappaError: (.*?)(?: \(|\n)")
# reqwest's words for an answer whose connection ends too early, and obstore's for a late answer.
_NO_ANSWER = ("request or response body error", "kind: Timeout")
_NO_BUCKET, _NO_OBJECT, _SKEWED = "NoSuchBucket", "NoSuchKey", "RequestTimeTooSkewed"
# The last code is versitygw's own.
_REFUSED = {
    *("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"),
    *("InvalidToken", "XAdminUserNotFound"),
}
# Of a server whose disk is full: versitygw's code, and MinIO's.
_FULL = {"InsufficientStorage", "XMinioStorageFull"}
GIVE_SPACE = "the disk of the server is full: give it space, and what waits goes on by itself"
NOT_LET_IN = (
    f"see whether the credentials ({' and '.join(IN_ENVIRONMENT)}, or this machine's) are those of "
    "a user who may read, write, list and delete there, and whether the clocks agree"
)


class Patience(NamedTuple):
    """The seconds to retry, to wait for one answer, and to wait for a connection.

    The last attempt begins before the seconds of retrying are over, so a caller may wait for the
    sum of retry and answer.
    """

    again: int
    answer: int
    connection: int


# A restarted server answers within seconds. A process that waits longer gives up, and says so.
WORKING = Patience(30, 20, 5)
# The start of a job costs more than waiting: a server that is away for half a minute ends none.
FOLDING = Patience(60, 20, 5)
# Clients of HTTP are answered within half a minute, and people who look within seconds.
ANSWERING = Patience(10, 15, 5)
LOOKING = Patience(2, 4, 2)
_patience = WORKING


@contextmanager
def with_patience(patience: Patience) -> Iterator[None]:
    """Sets how long this process waits for the servers of buckets within the block."""
    global _patience  # noqa: PLW0603  # what kind of process it is
    before, _patience = _patience, patience
    try:
        yield
    finally:
        _patience = before


def patience_here() -> Patience:
    """Returns how long this process waits for the servers of buckets."""
    return _patience


class Bucket:
    """The objects below one prefix of a bucket."""

    def __init__(self, url: str, storage: StorageSettings) -> None:
        """Takes `s3://BUCKET/PREFIX`, and sends no request. Raises SettingsError for other text."""
        found = _ROOT.fullmatch(url.rstrip("/"))
        if found is None or {"", ".", ".."} & {*found["prefix"].split("/")}:
            raise _no_root(url)
        if storage.endpoint is None and any(map(os.environ.get, _ENDPOINTS)):
            raise SettingsError(
                "AWS_ENDPOINT_URL is set, and not all that reads a root heeds it",
                hint="set storage.endpoint in kappa.toml to that URL, or unset the variable",
            )
        self.url, self.storage = found[0], storage
        # Called with a name before each request that changes the object of that name.
        self.before_change: Callable[[str], None] = lambda _name: None
        self._bucket = found["bucket"]
        self.endpoint = _endpoint_of(storage, self._bucket)
        self._prefix = found["prefix"]
        self._clients: dict[Patience, S3Store] = {}
        # Whether the server has answered nothing to the last request.
        self._is_away = False
        self._client_for(_patience)

    @property
    def _obstore_client(self) -> S3Store:
        return self._client_for(_patience)

    def _client_for(self, patience: Patience) -> S3Store:
        if patience not in self._clients:
            self._clients[patience] = self._client_of(patience)
        return self._clients[patience]

    def _client_of(self, patience: Patience) -> S3Store:
        try:
            return S3Store(
                self._bucket,
                prefix=self._prefix,
                config={
                    "region": region_of(self.storage),
                    "virtual_hosted_style_request": not self.storage.path_style,
                    **({} if self.endpoint is None else {"endpoint": self.endpoint}),
                },
                client_options={
                    "allow_http": is_plain_http(self.storage),
                    "timeout": timedelta(seconds=patience.answer),
                    "connect_timeout": timedelta(seconds=patience.connection),
                },
                retry_config={
                    "retry_timeout": timedelta(seconds=patience.again),
                    "max_retries": 1_000,
                    "backoff": {"max_backoff": _LONGEST_PAUSE},
                },
                credential_provider=None if keys_of_environment() else keys_for_requests,
            )
        except BaseError as error:
            raise SettingsError(
                f"a variable AWS_... of the environment is wrong: {str(error).splitlines()[0]}",
                hint="unset it, or fix it; kappa.toml says where the bucket is",
            ) from error

    def address(self, name: str) -> str:
        """Returns the URL of an object or a folder."""
        return f"{self.url}/{name}"

    def put(self, name: str, content: bytes, *, new: bool, synced: bool) -> bool:  # noqa: ARG002  # it always is
        """Puts an object whole. With `new`, returns False and changes nothing if the object exists.

        An existing object of equal bytes counts as put here. The answer to an earlier attempt may
        have been lost, and a lost answer is not a lost race. So a record that only one writer may
        put contains something that is unique to the writer.
        """
        self.before_change(name)
        return self._put_object(name, content, "create" if new else "overwrite")

    def put_if_tag(self, name: str, content: bytes, tag: str | None) -> bool:
        """Puts an object in place of the object with this tag; with None, only if no object exists.

        Returns False, and changes nothing, if another object is there by now.
        """
        return self._put_object(name, content, "create" if tag is None else {"e_tag": tag})

    def _put_object(self, name: str, content: bytes, mode: PutMode) -> bool:
        self._ensure_back("write", name)
        try:
            self._send_request(
                lambda: self._obstore_client.put(name, content, mode=mode, use_multipart=False)
            )
        except (AlreadyExistsError, PreconditionError):
            # None: the object was deleted meanwhile, so another writer's object was there.
            return self.get(name) == content
        except (BaseError, OSError) as error:
            raise self._request_error("write", name, error) from error
        return True

    def put_file(self, name: str, path: Path, *, claimed: bool = True) -> None:
        """Puts the content of a local file whole, in place of any object of that name."""
        if claimed:
            self.before_change(name)
        self._ensure_back("write", name)
        try:
            self._send_request(lambda: self._obstore_client.put(name, path))
        except (BaseError, OSError) as error:
            raise self._request_error("write", name, error) from error

    def get(self, name: str) -> bytes | None:
        """Returns an object's content, or None if the object does not exist."""
        found = self.get_tagged(name)
        return None if found is None else found[0]

    def get_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Returns an object's content and its tag, or None if the object does not exist."""

        def ask() -> tuple[bytes, str]:
            found = self._obstore_client.get(name)
            return bytes(found.bytes()), str(found.meta["e_tag"])

        return self._ask_server("read", name, ask)

    def read_pieces(self, name: str) -> tuple[int, Iterator[bytes]] | None:
        """Returns an object's size in bytes, and its content in pieces of one request each.

        Returns None if the object does not exist. The object must never change.
        """
        found = self.object_meta(name)
        if found is None:
            return None
        size = found["size"]
        starts = range(0, size, _PIECE)
        return size, (self.part(name, at, min(_PIECE, size - at)) for at in starts)

    def part(self, name: str, start: int, length: int) -> bytes:
        """Returns `length` bytes of an object from `start`. Raises KappaError.

        The object must exist and have these bytes.
        """
        self._ensure_back("read", name)
        try:
            found = self._send_request(
                lambda: bytes(get_range(self._obstore_client, name, start=start, length=length))
            )
        except (BaseError, OSError) as error:
            raise self._request_error("read", name, error) from error
        if len(found) != length:
            raise KappaError(
                f"could not read {self.address(name)}: {self._server_name} gave {len(found)} "
                "bytes, and not "
                f"the {length} that it was asked for",
                hint="ask again; if it stays so, see the server, and any proxy before it",
            )
        return found

    def object_meta(self, name: str) -> ObjectMeta | None:
        """Returns an object's size and time, or None if the object does not exist."""
        return self._ask_server("read", name, lambda: head(self._obstore_client, name))

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        """Returns the sorted names of all objects below a folder, or of objects `after` a name."""
        return tuple(sorted(str(each["path"]) for each in self.list_metas(prefix, after=after)))

    def list_metas(self, prefix: str, *, after: str | None = None) -> list[ObjectMeta]:
        """Returns all objects below a folder with their names, sizes and times."""

        def ask() -> list[ObjectMeta]:
            return [
                each for batch in self._obstore_client.list(prefix, offset=after) for each in batch
            ]

        return self._ask_server("list", prefix, ask) or []

    def names_in(self, folder: str) -> list[str]:
        """Returns the last parts of the names of the objects that are directly in a folder."""
        found = self._directly_in(folder)
        return [] if found is None else _last_parts(each["path"] for each in found["objects"])

    def folders_in(self, folder: str) -> list[str]:
        """Returns the last parts of the names of the folders that are directly in a folder."""
        found = self._directly_in(folder)
        return [] if found is None else _last_parts(found["common_prefixes"])

    def _directly_in(self, folder: str) -> ListResult[Sequence[ObjectMeta]] | None:
        return self._ask_server(
            "list", folder, lambda: list_with_delimiter(self._obstore_client, folder)
        )

    def delete(self, names: Sequence[str]) -> None:
        """Deletes objects in any order, 1,000 a request; a missing object counts as deleted.

        If the process dies meanwhile, some of the objects are left.
        """
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            self.before_change(part[0])
            self._ask_server("delete", part[0], partial(self._obstore_client.delete, part))

    def copy(self, name: str, to: str) -> bool:
        """Copies an object within the server. Returns False if the object does not exist."""
        self.before_change(to)

        def ask() -> bool:
            copy(self._obstore_client, name, to)
            return True

        return self._ask_server("copy", name, ask) is not None

    def move(self, name: str, to: str) -> bool:
        """Gives an object another name. Returns False if the object does not exist.

        For a moment the object has both names, and keeps both if the process dies then.
        """
        if not self.copy(name, to):
            return False
        self.delete([name])
        return True

    def sync(self, files: Iterable[Path]) -> None:
        """Does nothing: an object that the server has acknowledged lasts."""

    def ensure_lasting(self, name: str) -> None:
        """Does nothing: an object in a bucket is durable once it can be read."""

    def _ask_server(self, what: str, name: str, ask: Callable[[], _Answer]) -> _Answer | None:
        """Asks the server. Returns None if the object does not exist. Raises KappaError."""
        self._ensure_back(what, name)
        try:
            return self._send_request(ask)
        except (NotFoundError, FileNotFoundError) as error:
            if is_no_object(error):
                return None
            raise self._request_error(what, name, error) from error
        except (BaseError, OSError) as error:
            raise self._request_error(what, name, error) from error

    def _send_request(self, ask: Callable[[], _Answer]) -> _Answer:
        """Sends a request, and repeats the request until a whole answer comes.

        obstore gives up when an answer ends early, or when a conditional put is late. So each
        request can be sent twice: see `put`.
        """
        until = time.monotonic() + _patience.again
        while True:
            try:
                return ask()
            except GenericError as error:
                if not has_no_answer(error) or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _ensure_back(self, what: str, name: str) -> None:
        """Checks whether a server that was away answers. Raises KappaError if the server does not.

        So a caller that asks for many objects waits once for an absent server, and not for each
        object.
        """
        if not self._is_away:
            return
        try:
            head(self._client_for(LOOKING), _PROBE)
        except (GenericError, OSError) as error:
            if not isinstance(error, FileNotFoundError):
                raise self._request_error(what, name, error) from error
        except BaseError:
            # The server answers; the request itself shows whether the server lets this client in.
            pass
        self._is_away = False

    @property
    def _server_name(self) -> str:
        """Returns the server's name for people."""
        return self.storage.endpoint or "Amazon's S3"

    def _request_error(self, what: str, name: str, error: Exception) -> KappaError:
        self._is_away = isinstance(error, GenericError | OSError)
        why, hint = why_refused(error, self._server_name, self._bucket)
        return KappaError(f"could not {what} {self.address(name)}: {why}", hint=hint)


def is_bucket(root: str) -> bool:
    """Returns True if a root is in a bucket."""
    return root.startswith(_SCHEME)


def region_of(storage: StorageSettings) -> str:
    """Returns a bucket's region: as set, as in the environment, or the default region."""
    set_by_user = (os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    return storage.region or next(filter(None, set_by_user), _REGION)


def is_plain_http(storage: StorageSettings) -> bool:
    """Returns True if requests are sent without TLS."""
    return storage.endpoint is not None and urlsplit(storage.endpoint).scheme == "http"


def _last_parts(names: Iterable[str]) -> list[str]:
    return sorted(name.rstrip("/").rpartition("/")[2] for name in names)


def _no_root(root: str) -> SettingsError:
    url = without_secrets(root)
    bucket = urlsplit(url).netloc
    if bucket and not _LEAST <= len(bucket) <= _MOST:
        return SettingsError(
            f"the name {bucket} of the bucket of the root {url} is too "
            f"{'short' if len(bucket) < _LEAST else 'long'}: it has {len(bucket)} characters",
            hint=f"set root in kappa.toml to a bucket, whose name has {_LEAST} to {_MOST}",
        )
    return SettingsError(
        f"the root {url} is not the URL of a folder in a bucket",
        hint="set root in kappa.toml as in s3://BUCKET/kappa; of letters, digits, _ - . =; "
        "credentials are not part of it",
    )


def _endpoint_of(storage: StorageSettings, bucket: str) -> str | None:
    """Returns the URL of a bucket's server for obstore and delta-rs, or None for Amazon's server.

    Without path style, the bucket's name is put into the host's name. These libraries do not do so
    for a server that their user has named.
    """
    if storage.endpoint is None or storage.path_style:
        return storage.endpoint
    scheme, _, host = storage.endpoint.partition("://")
    return f"{scheme}://{bucket}.{host}"


class RangedFile(io.RawIOBase):
    """An object of a bucket as a file, read at any place by a request per read.

    The object exists and never changes.
    """

    def __init__(self, bucket: Bucket, name: str, size: int) -> None:
        self._bucket = bucket
        self._name = name
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves to another place, and returns the place."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """Returns the place of the next read."""
        return self._place

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # any buffer is one
        """Reads as many bytes as the buffer or the object has. Raises KappaError."""
        wanted = min(len(buffer), max(0, self._size - self._place))
        if wanted:
            buffer[:wanted] = self._bucket.part(self._name, self._place, wanted)
            self._place += wanted
        return wanted


def has_no_answer(error: Exception) -> bool:
    """Returns True if an answer has not come in time, or has ended before its end."""
    return any(each in str(error) for each in _NO_ANSWER)


def is_no_object(error: Exception) -> bool:
    """Returns True if a 404 answer means that an object does not exist.

    Servers answer 404 for a missing bucket, too, and some servers for unknown credentials.
    """
    return _code_of(str(error)) in {None, _NO_OBJECT}


def why_refused(error: Exception, at: str, bucket: str) -> tuple[str, str]:
    """Returns why the server `at` refused a request about a bucket, and a hint."""
    told = str(error)
    code = _code_of(told)
    if found := _NO_KEYS.search(told):
        return found[1], WAYS
    if code == _NO_BUCKET:
        return f"{at} has no bucket {bucket}", "make it, or set another root"
    if code == _SKEWED:
        return (
            f"the clock of this machine is not that of {at}",
            "set the clock, such as by chrony; S3 takes a difference of 15 minutes",
        )
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or code in _REFUSED:
        return f"{at} does not let this client do that in bucket {bucket}", NOT_LET_IN
    hint = GIVE_SPACE if is_full(told) else "see whether the server can be reached"
    return f"{at}: {code or _first_reason(told)}", hint


def is_full(told: str) -> bool:
    """Returns True if an error quotes a server whose disk is full."""
    return _code_of(told) in _FULL


def _code_of(told: str) -> str | None:
    found = _CODE.search(told)
    return None if found is None else found[1]


def _first_reason(told: str) -> str:
    # The first line has a sentence, and the cause after a dash.
    return told.partition("\n")[0].rpartition(" - ")[2]
