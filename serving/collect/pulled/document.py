"""The events of a polled document: a JSON array's elements, or one event per line. Pure."""

from __future__ import annotations

import msgspec

from kappa.serving.collect.lines import Invalid

_MALFORMED = "malformed_json"


def events_of_document(document: bytes, media_type: str) -> list[bytes | Invalid]:
    """Returns the events of a document, in order.

    A document that is declared as JSON and is not an array is a single event. Any other document
    has one event per line, unless the document begins like an array.
    """
    content = document.removeprefix(b"\xef\xbb\xbf").strip()
    kind = media_type.partition(";")[0].strip().lower()
    if content.startswith(b"["):
        try:
            return [bytes(each) for each in msgspec.json.decode(content, type=list[msgspec.Raw])]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return [Invalid(_MALFORMED, f"the document is not a JSON array: {error}")]
    if kind == "application/json" or (kind.endswith("+json") and content):
        return [content] if content else []
    return [line.strip() for line in content.split(b"\n") if line.strip()]
