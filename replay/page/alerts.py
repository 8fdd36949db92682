"""Computes the data of the alerts page: open matters, notices and alerts. Pure.

The most urgent come first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kappa.replay.page.open_matters import OpenMatter
from kappa.replay.page.states import TONES, Health, alert_health, matter_health
from kappa.replay.status.alerts import AlertStatus, ShownNotice


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A notice with its severity.

    `is_open` is True if the fact that the notice reports is still true. `alert` is the alert that
    cannot send, if this is the fact, otherwise "".
    """

    notice: ShownNotice
    is_open: bool
    is_critical: bool
    alert: str = ""

    @property
    def health(self) -> Health:
        """Returns the notice's state (Critical, Warning or Resolved) and its tone for display."""
        return matter_health(is_open=self.is_open, is_critical=self.is_critical)


def notice_rows(found: Iterable[ShownNotice], matters: Iterable[OpenMatter]) -> list[NoticeRow]:
    """Returns a row for each open matter, and then a row for each notice of the past.

    `found` are the notices, newest first. A matter that no notice tells has a row too. Critical
    matters come before warnings. Within each group, the newest row comes first.
    """
    told, matters = tuple(found), tuple(matters)
    rows = [
        NoticeRow(
            next((each for each in told if matter.is_told_by(each)), None) or _untold(matter),
            is_open=True,
            is_critical=matter.is_critical,
            alert=matter.alert,
        )
        for matter in matters
    ]
    rows += [
        NoticeRow(each, is_open=False, is_critical=False)
        for each in told
        if not any(matter.is_told_by(each) for matter in matters)
    ]
    rows.sort(key=lambda row: row.notice.at, reverse=True)
    rows.sort(key=lambda row: (not row.is_open, row.is_open and not row.is_critical))
    return rows


def _untold(matter: OpenMatter) -> ShownNotice:
    """Returns an open matter in the form of a notice."""
    return ShownNotice(
        kind=matter.kind,
        at=matter.at,
        text=matter.text,
        hint=matter.hint,
        pipeline=matter.pipeline,
        build=matter.build,
        rollout=matter.rollout,
        proof="",
        place=None,
    )


def sorted_alerts(found: Iterable[AlertStatus]) -> Sequence[AlertStatus]:
    """Sorts alerts by the severity of their states, the worst first, and then by name."""
    return sorted(found, key=lambda each: (TONES.index(alert_health(each).tone), each.name))


def message_fields(body: str) -> list[tuple[str, object]]:
    """Returns what the body of a message tells about a row or a fact, each field with its name.

    The kind of the change and the text of a notice have no name. The result is empty if the body
    is not a JSON object.
    """
    try:
        found = json.loads(body)
    except ValueError:
        return []
    if not isinstance(found, dict):
        return []
    row = dict[str, object]()
    for part in (found.get("key"), found.get("after") or found.get("before")):
        row |= part if isinstance(part, dict) else {}
    return [*(("", found[name]) for name in ("op", "text") if name in found), *row.items()]
