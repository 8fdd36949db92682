"""Objects below a prefix of a bucket, by the S3 protocol.

If the answer to a request is lost, the request is sent again. If a server is unavailable or
overloaded, the request is repeated for half a minute, or for the time in `with_patience`. If the
server was still unavailable after that, each later request first checks whether the server answers
again. A server acknowledges an upload when the object is on several disks, so no sync is needed.

Credentials come from the environment, or from Amazon's credential chain (credentials.py). No object
in this module contains credentials, so no error can show them. The messages of obstore's errors are
pages long; this module replaces each message by one sentence.
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
    """Time limits for requests to a bucket, in seconds.

    `again` is the limit for all attempts of a request together, `answer` for one answer, and
    `connection` for opening a connection. The last attempt begins before the time `again` is over.
    So a request may last as long as the sum of `again` and `answer`.
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
    """Sets the time limits of this process for requests to buckets, within the block."""
    global _patience  # noqa: PLW0603  # what kind of process it is
    before, _patience = _patience, patience
    try:
        yield
    finally:
        _patience = before


def patience_here() -> Patience:
    """Returns the time limits of this process for requests to buckets."""
    return _patience


class Bucket:
    """The objects below one prefix of a bucket. An operation that fails raises KappaError."""

    def __init__(self, url: str, storage: StorageSettings) -> None:
        """Opens the root `s3://BUCKET/PREFIX`, without a request to the server.

        Raises SettingsError if the URL or the settings are not valid.
        """
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
        """Writes a whole object. With `new`, returns False if the object already exists.

        If False is returned, nothing has changed. If the existing object has equal bytes, True is
        returned: an earlier attempt of this call may have written the object, and its answer may
        have been lost. So if only one of several writers may succeed, the content must contain
        something that is unique to the writer.
        """
        self.before_change(name)
        return self._put_object(name, content, "create" if new else "overwrite")

    def put_if_tag(self, name: str, content: bytes, tag: str | None) -> bool:
        """Writes an object under a condition on the object that exists.

        `tag` is the entity tag (ETag) of the object to replace. If `tag` is None, the object is
        created, on the condition that no object of that name exists. Returns False, and changes
        nothing, if the condition does not hold and the existing object has other content.
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
        """Uploads a local file as a whole. An existing object of that name is replaced.

        With `claimed`, this method first checks the claim: this host must be allowed to change the
        root.
        """
        if claimed:
            self.before_change(name)
        self._ensure_back("write", name)
        try:
            self._send_request(lambda: self._obstore_client.put(name, path))
        except (BaseError, OSError) as error:
            raise self._request_error("write", name, error) from error

    def get(self, name: str) -> bytes | None:
        """Returns the content of an object, or None if the object does not exist."""
        found = self.get_tagged(name)
        return None if found is None else found[0]

    def get_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Returns the content of an object and its entity tag (ETag).

        Returns None if the object does not exist.
        """

        def ask() -> tuple[bytes, str]:
            found = self._obstore_client.get(name)
            return bytes(found.bytes()), str(found.meta["e_tag"])

        return self._ask_server("read", name, ask)

    def read_pieces(self, name: str) -> tuple[int, Iterator[bytes]] | None:
        """Returns the size of an object in bytes, and an iterator over its content in pieces.

        Each piece is read by one request. Returns None if the object does not exist. The object
        must never change.
        """
        found = self.object_meta(name)
        if found is None:
            return None
        size = found["size"]
        starts = range(0, size, _PIECE)
        return size, (self.part(name, at, min(_PIECE, size - at)) for at in starts)

    def part(self, name: str, start: int, length: int) -> bytes:
        """Returns `length` bytes of an object, beginning with the byte number `start`.

        The object must exist, and must have at least `start + length` bytes. Raises KappaError if
        the bytes cannot be read.
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
        """Returns the size and the time of an object, or None if the object does not exist."""
        return self._ask_server("read", name, lambda: head(self._obstore_client, name))

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        """Returns the sorted names of all objects below a folder.

        With `after`, only names that sort after `after` are returned.
        """
        return tuple(sorted(str(each["path"]) for each in self.list_metas(prefix, after=after)))

    def list_metas(self, prefix: str, *, after: str | None = None) -> list[ObjectMeta]:
        """Returns the name, size and time of each object below a folder.

        With `after`, only objects whose names sort after `after` are returned.
        """

        def ask() -> list[ObjectMeta]:
            return [
                each for batch in self._obstore_client.list(prefix, offset=after) for each in batch
            ]

        return self._ask_server("list", prefix, ask) or []

    def names_in(self, folder: str) -> list[str]:
        """Returns the names of the objects directly in a folder, relative to that folder."""
        found = self._directly_in(folder)
        return [] if found is None else _last_parts(each["path"] for each in found["objects"])

    def folders_in(self, folder: str) -> list[str]:
        """Returns the names of a folder's direct subfolders, relative to that folder."""
        found = self._directly_in(folder)
        return [] if found is None else _last_parts(found["common_prefixes"])

    def _directly_in(self, folder: str) -> ListResult[Sequence[ObjectMeta]] | None:
        return self._ask_server(
            "list", folder, lambda: list_with_delimiter(self._obstore_client, folder)
        )

    def delete(self, names: Sequence[str]) -> None:
        """Deletes objects in any order, 1,000 per request. Missing objects are ignored.

        If the process dies during the deletion, some of the objects are left.
        """
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            self.before_change(part[0])
            self._ask_server("delete", part[0], partial(self._obstore_client.delete, part))

    def copy(self, name: str, to: str) -> bool:
        """Copies an object within the server. Returns False if the object `name` does not exist."""
        self.before_change(to)

        def ask() -> bool:
            copy(self._obstore_client, name, to)
            return True

        return self._ask_server("copy", name, ask) is not None

    def move(self, name: str, to: str) -> bool:
        """Renames an object. Returns False if the object does not exist.

        The object is copied to the new name, and then the old name is deleted. If the process dies
        between these steps, both names remain.
        """
        if not self.copy(name, to):
            return False
        self.delete([name])
        return True

    def sync(self, files: Iterable[Path]) -> None:
        """Does nothing, because an object that the server has acknowledged is durable."""

    def ensure_lasting(self, name: str) -> None:
        """Does nothing, because an object in a bucket is durable as soon as it can be read."""

    def _ask_server(self, what: str, name: str, ask: Callable[[], _Answer]) -> _Answer | None:
        """Sends a request and returns its answer, or None if the object does not exist.

        `ask` sends the request. `what` and `name` describe the request in errors. Raises KappaError
        for any other failure.
        """
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
        """Sends a request, and repeats it until a complete answer arrives or time is up.

        `ask` sends the request. obstore does not retry if an answer is incomplete, or if the answer
        to a conditional put is late. So a request may be sent twice: see `put`.
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
        """Checks that the server answers, if the server did not answer the last request.

        Raises KappaError if the server does not answer. So a caller that requests many objects
        waits the full time only once for an unavailable server, instead of once per object. `what`
        and `name` describe the caller's request in the error.
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
        """Returns the server's name for error messages."""
        return self.storage.endpoint or "Amazon's S3"

    def _request_error(self, what: str, name: str, error: Exception) -> KappaError:
        self._is_away = isinstance(error, GenericError | OSError)
        why, hint = why_refused(error, self._server_name, self._bucket)
        return KappaError(f"could not {what} {self.address(name)}: {why}", hint=hint)


def is_bucket(root: str) -> bool:
    """Returns True if a root is the URL of a bucket."""
    return root.startswith(_SCHEME)


def region_of(storage: StorageSettings) -> str:
    """Returns the region of a bucket.

    The region comes from the settings, or otherwise from the environment. Without either, it is
    us-east-1.
    """
    set_by_user = (os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    return storage.region or next(filter(None, set_by_user), _REGION)


def is_plain_http(storage: StorageSettings) -> bool:
    """Returns True if requests to the server are sent without TLS."""
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

    Without path style, the bucket's name is part of the host name. These libraries do not add the
    name themselves if the server's URL is given.
    """
    if storage.endpoint is None or storage.path_style:
        return storage.endpoint
    scheme, _, host = storage.endpoint.partition("://")
    return f"{scheme}://{bucket}.{host}"


class RangedFile(io.RawIOBase):
    """A read-only file over an object in a bucket. Each read sends a request for a range of bytes.

    The object must exist and never change.
    """

    def __init__(self, bucket: Bucket, name: str, size: int) -> None:
        self._bucket = bucket
        self._name = name
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        """Returns True, since the file can be read."""
        return True

    def seekable(self) -> bool:
        """Returns True, since the position can be changed."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Changes the position, and returns the new position from the beginning of the file."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """Returns the position of the next read, in bytes from the beginning."""
        return self._place

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # any buffer is one
        """Reads bytes into the buffer until the buffer is full or the object ends.

        Returns the number of bytes. Raises KappaError if the bytes cannot be read.
        """
        wanted = min(len(buffer), max(0, self._size - self._place))
        if wanted:
            buffer[:wanted] = self._bucket.part(self._name, self._place, wanted)
            self._place += wanted
        return wanted


def has_no_answer(error: Exception) -> bool:
    """Returns True if an error means that an answer was late or incomplete."""
    return any(each in str(error) for each in _NO_ANSWER)


def is_no_object(error: Exception) -> bool:
    """Returns True if an error with status 404 means that an object does not exist.

    Servers also return 404 if the bucket does not exist, and some servers if the credentials are
    unknown.
    """
    return _code_of(str(error)) in {None, _NO_OBJECT}


def why_refused(error: Exception, at: str, bucket: str) -> tuple[str, str]:
    """Returns the reason why a request to a bucket failed, and a hint for the user.

    `at` is the name of the server in the reason.
    """
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
    """Returns True if the text of an error means that the server's disk is full."""
    return _code_of(told) in _FULL


def _code_of(told: str) -> str | None:
    found = _CODE.search(told)
    return None if found is None else found[1]


def _first_reason(told: str) -> str:
    # The first line has a sentence, and the cause after a dash.
    return told.partition("\n")[0].rpartition(" - ")[2]
