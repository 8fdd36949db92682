"""Credentials of buckets where the environment has none: the credentials of the usual chain.

The chain is Amazon's own: a web identity, a profile below ~/.aws, the service of a container, and
the service of a machine. botocore goes through the chain, and renews temporary credentials before
they end. botocore is imported only then, since the import takes half a second. The credentials are
only in memory.
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
    """A key with its secret, and a session's token if they are temporary; none is shown."""

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)


def keys_now() -> Keys:
    """Returns the keys of the environment, or of the chain. Raises KappaError if both have none."""
    return keys_of_environment() or keys_of_chain()


def keys_of_environment() -> Keys | None:
    """Returns the keys of the environment, or None if the environment has none.

    Raises SettingsError if the environment has only half of a key.
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
    """Returns keys that last some ten minutes more. Raises KappaError if the chain gives none.

    A source whose keys last less than that is asked each time.
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
    """Returns keys in obstore's form. Raises KappaError if the chain gives none."""
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
