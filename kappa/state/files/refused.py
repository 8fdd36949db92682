"""Errors of requests to a bucket, as sentences of ours; obstore's own are pages."""

from __future__ import annotations

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from kappa.state.files.credentials import IN_ENVIRONMENT, WAYS

# A server's own word for why it refuses a request.
_CODE = re.compile(r"<Code>(\w+)</Code>")
# As obstore quotes an error of `keys_for_requests`.
_NO_KEYS = re.compile(r"credential provider: KappaError: (.*?)(?: \(|\n)")
# As reqwest calls an answer whose connection ends too early, and obstore one that is late.
_NO_ANSWER = ("request or response body error", "kind: Timeout")
_NO_BUCKET, _NO_OBJECT = "NoSuchBucket", "NoSuchKey"
# The last one is versitygw's own.
_REFUSED = {
    *("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"),
    *("InvalidToken", "XAdminUserNotFound"),
}

NOT_LET_IN = (
    f"see whether the credentials ({' and '.join(IN_ENVIRONMENT)}, or this machine's) are those of "
    "a user who may read, write, list and delete there, and whether the clocks agree"
)


def has_no_answer(error: Exception) -> bool:
    """Returns True if an answer has not come in time, or has ended before its end."""
    return any(each in str(error) for each in _NO_ANSWER)


def is_no_object(error: Exception) -> bool:
    """Returns True if an answer 404 is of an object that does not exist.

    Servers answer so for a bucket that does not exist, and some for unknown credentials.
    """
    return _code_of(str(error)) in {None, _NO_OBJECT}


def why_refused(error: Exception, at: str, bucket: str) -> tuple[str, str]:
    """Returns why the server `at` did not do what was asked of a bucket, and a hint."""
    told = str(error)
    code = _code_of(told)
    if found := _NO_KEYS.search(told):
        return found[1], WAYS
    if code == _NO_BUCKET:
        return f"{at} has no bucket {bucket}", "make it, or set another root"
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or code in _REFUSED:
        return f"{at} does not let this client do that in bucket {bucket}", NOT_LET_IN
    return f"{at}: {code or _reason(told)}", "see whether the server can be reached"


def _code_of(told: str) -> str | None:
    found = _CODE.search(told)
    return None if found is None else found[1]


def _reason(told: str) -> str:
    # Its first line: a sentence, and after a dash what went wrong.
    return told.partition("\n")[0].rpartition(" - ")[2]
