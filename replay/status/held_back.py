"""The offsets that open transactions keep from readers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kappa.state.offsets import Offsets


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Offsets of a partition that an open transaction, begun at the first, keeps from readers."""

    topic: str
    partition: int
    offset: int
    count: int


def held_back(end: Offsets, high_watermark: Offsets) -> tuple[HeldBack, ...]:
    """Lists what open transactions hold back.

    That is what is between the end for readers of committed records and the log's own end.
    """
    return tuple(
        HeldBack(topic, partition, end.at(topic, partition), high - end.at(topic, partition))
        for topic, partition, high in high_watermark.items()
        if high > end.at(topic, partition)
    )
