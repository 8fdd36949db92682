"""The seal of a document: a field that contains a hash of all other bytes of the document.

All documents that Kappa reads from a root are sealed, so that Kappa notices a changed bit. A
document that an earlier version of Kappa wrote has no seal, and is read without this check. Anybody
can write a document with a valid seal: the seal protects against accidental damage, not against
forgery.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "seal"
_DIGITS = 32


class SealBroken(ValueError):
    """The error if a document has changed since it was written."""


def encoded(document: object) -> bytes:
    """Encodes a document as JSON. Equal documents have equal bytes."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()


def sealed(document: Mapping[str, Any]) -> tuple[bytes, str]:
    """Encodes a document as JSON, with its seal as an additional field.

    Returns the encoded document and the seal.
    """
    assert SEAL not in document, "a document gets its seal here"
    seal = _seal_of(encoded(document))
    return encoded({**document, SEAL: seal}), seal


def unsealed(content: bytes) -> tuple[Any, str]:
    """Decodes a document. Returns the document without its seal, and the seal.

    The seal is "" if the document has none. Raises ValueError if the bytes are not JSON, and
    SealBroken if the bytes have changed since the document was written.
    """
    document = json.loads(content)
    if not isinstance(document, dict):
        return document, ""
    if SEAL not in document:
        # Readers skip unknown fields, and a seal with a damaged key would look like such a field.
        if any(_is_sealed_by(content, key, value) for key, value in document.items()):
            raise SealBroken("its seal is not as it was written")
        return document, ""
    seal = document.pop(SEAL)
    if not _is_sealed_by(content, SEAL, seal):
        raise SealBroken("it is not as it was written")
    return document, str(seal)


def _is_sealed_by(content: bytes, key: str, seal: object) -> bool:
    """Returns True if a field of a document contains the hash of all other bytes.

    `content` is the encoded document, `key` is the name of the field, and `seal` is its value.
    """
    if not isinstance(seal, str) or len(seal) != _DIGITS:
        return False
    before, _, after = content.partition(f'"{key}":"{seal}"'.encode())
    rest = before[:-1] + after if before.endswith(b",") else before + after.removeprefix(b",")
    return _seal_of(rest) == seal


def _seal_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
