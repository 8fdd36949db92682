"""Rejects as rows under columns, and one reject in full for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kappa.serving.query.render import Listing, cell

if TYPE_CHECKING:
    from kappa.serving.query.rejects import Reject


def rejects_listing(found: Iterable[Reject]) -> Listing:
    """Makes a row of each reject; the table leaves out what `kappa rejects show` has."""
    columns = (
        "pipeline",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "reason",
        "detail",
        "key",
        "value",
        "redriven_at",
        "redrives",
        "headers",
        "build",
    )
    return Listing(
        columns,
        tuple(_reject_row(each) for each in found),
        wide=frozenset({"redrives", "headers", "build"}),
    )


def reject_text(reject: Reject) -> str:
    """Returns all of one reject for people, a fact a line.

    Bytes are text if they are UTF-8, else hexadecimal digits.
    """
    original = reject.original.position
    facts = [
        ("place", str(reject.at)),
        ("timestamp", cell(reject.timestamp)),
        ("pipeline", reject.pipeline),
        ("build", reject.build),
        ("reason", reject.reason),
        ("detail", cell(reject.detail)),
        *([("redrives", str(original))] if original != reject.at else []),
        *(
            [
                (
                    "redriven",
                    f"folded at {reject.at.topic}:{reject.at.partition}:{reject.redriven_at}",
                )
            ]
            if reject.redriven_at is not None
            else []
        ),
        ("key", _raw(reject.key)),
        *(("header", f"{cell(name)}: {_raw(value)}") for name, value in reject.headers),
        ("value", _raw(reject.value)),
    ]
    return "".join(f"{name:<10} {text}\n" for name, text in facts)


def _reject_row(reject: Reject) -> tuple[Any, ...]:
    at, original = reject.at, reject.original.position
    headers = [{"name": name, "value": value} for name, value in reject.headers]
    place = (reject.pipeline, at.topic, at.partition, at.offset, reject.timestamp)
    return (
        *place,
        reject.reason,
        reject.detail,
        reject.key,
        reject.value,
        reject.redriven_at,
        None if original == at else original.offset,
        headers,
        reject.build,
    )


def _raw(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return cell(value.decode())
    except UnicodeDecodeError:
        return f"hex {value.hex()}"
