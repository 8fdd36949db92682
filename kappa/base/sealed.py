"""The seal of a document: a hash of all its other bytes, which the document itself has.

All that is written down below a root and read back is sealed, so a bit that has changed is noticed.
A document that an earlier Kappa wrote has no seal, and is read as it is. Nobody is kept from
writing a document with a seal that fits: this is against rot, not malice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "seal"
_DIGITS = 32


class SealBroken(ValueError):
    """A document that is not as it was written."""


def encoded(document: object) -> bytes:
    """Returns a document as JSON: equal documents are equal bytes."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()


def sealed(document: Mapping[str, Any]) -> tuple[bytes, str]:
    """Returns a document as JSON with its seal, and the seal."""
    assert SEAL not in document, "a document gets its seal here"
    seal = _seal_of(encoded(document))
    return encoded({**document, SEAL: seal}), seal


def unsealed(content: bytes) -> tuple[Any, str]:
    """Returns the document of some bytes without its seal, and the seal: "" if it has none.

    Raises ValueError if the bytes are no JSON, and SealBroken if they are not as they were written.
    """
    document = json.loads(content)
    if not isinstance(document, dict):
        return document, ""
    if SEAL not in document:
        # A seal whose key has changed would be passed over, as a field that is not known.
        if any(_is_sealed_by(content, key, value) for key, value in document.items()):
            raise SealBroken("its seal is not as it was written")
        return document, ""
    seal = document.pop(SEAL)
    if not _is_sealed_by(content, SEAL, seal):
        raise SealBroken("it is not as it was written")
    return document, str(seal)


def _is_sealed_by(content: bytes, key: str, seal: object) -> bool:
    """Returns True if a member of a document is the seal of all its other bytes."""
    if not isinstance(seal, str) or len(seal) != _DIGITS:
        return False
    before, _, after = content.partition(f'"{key}":"{seal}"'.encode())
    rest = before[:-1] + after if before.endswith(b",") else before + after.removeprefix(b",")
    return _seal_of(rest) == seal


def _seal_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
