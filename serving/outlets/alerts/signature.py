"""The signature of a message, as Standard Webhooks has it (standardwebhooks.com). Pure.

It signs `ID.SECONDS.BODY` by HMAC-SHA256. A secret `whsec_...` is base64; any other is its own
bytes. Several secrets, with spaces between, each sign: a receiver moves from one to the next so.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from kappa.base.errors import SettingsError

_PREFIX = "whsec_"


def keys_of(secret: str) -> tuple[bytes, ...]:
    """Returns the keys in a secret of the settings. Raises SettingsError, without showing it.

    A key of fewer than 16 bytes can be guessed, and is refused.
    """
    return tuple(_key_of(each) for each in secret.split())


def signed_headers(
    id_: str, body: bytes, *, seconds: int, keys: tuple[bytes, ...]
) -> dict[str, str]:
    """Returns the headers that sign a message at a time."""
    signed = b"%s.%d.%s" % (id_.encode(), seconds, body)
    signatures = (
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for key in keys
    )
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signatures),
    }


def _key_of(secret: str) -> bytes:
    key = secret.encode()
    if secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise SettingsError(
                "a secret of [alerts] begins with whsec_, and is no base64 after that",
                hint="make one: echo whsec_$(openssl rand -base64 32)",
            ) from None
    if len(key) < 16:
        raise SettingsError(
            "a secret of [alerts] is shorter than 16 bytes, so it can be guessed",
            hint="make one: echo whsec_$(openssl rand -base64 32)",
        )
    return key
