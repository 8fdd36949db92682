"""Credentials of buckets: from the environment, or otherwise from Amazon's credential chain.

The chain searches these sources: a web identity, a profile below ~/.aws, the service of a
container, and the service of a machine. botocore searches the chain, and renews temporary
credentials before they expire. botocore is imported only when it is needed, since the import takes
half a second. The credentials are kept only in memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from kappa.base.errors import KappaError, SettingsError

if TYPE_CHECKING:
    from obstore.store import S3Credential

IN_ENVIRONMENT = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
WAYS = f"set {' and '.join(IN_ENVIRONMENT)}, or give this machine a role or a profile in ~/.aws"
# obstore asks again for keys that end so soon, ten times a second at most; botocore knows when.
_ASKED_AGAIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Keys:
    """An access key with its secret, and a session token if the key is temporary.

    `repr` shows none of these values.
    """

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)


def keys_now() -> Keys:
    """Returns the keys from the environment, or otherwise from the credential chain.

    Raises KappaError if neither of them provides keys.
    """
    return keys_of_environment() or keys_of_chain()


def keys_of_environment() -> Keys | None:
    """Returns the keys from the environment, or None if the environment contains no keys.

    Raises SettingsError if the environment contains only the id or only the secret of a key.
    """
    found = [os.environ.get(name, "") for name in IN_ENVIRONMENT]
    if not any(found):
        return None
    for name, value in zip(IN_ENVIRONMENT, found, strict=True):
        if not value:
            raise SettingsError(
                f"{name} is not in the environment, but the other half of a key is", hint=WAYS
            )
    key_id, secret = found
    return Keys(key_id, secret, os.environ.get("AWS_SESSION_TOKEN") or None)


def keys_of_chain() -> Keys:
    """Returns keys that are valid for about ten more minutes, from Amazon's credential chain.

    If a source issues keys that are valid for a shorter time, each call requests new keys from the
    source. Raises KappaError if the chain provides no keys, or if a source fails.
    """
    try:
        found = _credential_chain().get_frozen_credentials()
    except KappaError:
        raise
    except Exception as error:  # noqa: BLE001  # a source may answer anything
        # The error's text may quote the answer.
        raise KappaError(
            f"the source of this machine's credentials fails by {type(error).__name__}", hint=WAYS
        ) from None
    return Keys(found.access_key, found.secret_key, found.token or None)


def keys_for_requests() -> S3Credential:
    """Returns keys from the credential chain in obstore's format.

    Raises KappaError if the chain provides no keys, or if a source fails.
    """
    keys = keys_of_chain()
    return {
        "access_key_id": keys.key_id,
        "secret_access_key": keys.secret,
        "token": keys.token,
        "expires_at": datetime.now(UTC) + _ASKED_AGAIN,
    }


@cache
def _credential_chain() -> Any:
    from botocore.session import Session  # noqa: PLC0415  # see above

    found = Session().get_credentials()
    if found is None:
        raise KappaError("there are no credentials of a bucket", hint=WAYS)
    return found
