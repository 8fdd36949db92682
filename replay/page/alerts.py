"""Computes the data of the alerts page: notices and alerts, the most urgent first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kappa.replay.page.overview import Health
from kappa.replay.rollout.state import State
from kappa.replay.status.alerts import AlertState, AlertStatus, ShownNotice
from kappa.replay.status.status import Status

# Notices of these kinds can wait; all others stop rows, or say that rows are wrong.
_WARNINGS = frozenset({"rollout_waits", "drift"})
_TONES = ("bad", "warn", "unknown", "busy", "ok")


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A notice with its severity.

    `is_open` is True if the fact that the notice reports is still true.
    """

    notice: ShownNotice
    is_open: bool
    is_critical: bool

    @property
    def health(self) -> Health:
        """Returns the notice's state (Critical, Warning or Resolved) and its tone for display."""
        if not self.is_open:
            return Health("Resolved", "ok")
        return Health("Critical", "bad") if self.is_critical else Health("Warning", "warn")


def notice_rows(found: Iterable[ShownNotice], status: Status, state: State) -> list[NoticeRow]:
    """Returns the notices with their states.

    Open notices come before resolved notices, and critical ones before warnings. Within each group,
    the newest notice comes first.
    """
    rows = [
        NoticeRow(each, _is_open(each, status, state), each.kind not in _WARNINGS) for each in found
    ]
    rows.sort(key=lambda row: row.notice.at, reverse=True)
    rows.sort(key=lambda row: (not row.is_open, row.is_open and not row.is_critical))
    return rows


def alert_health(alert: AlertStatus) -> Health:
    """Returns the state of an alert in a few words, with a tone, and with the error if any."""
    if alert.error:
        return Health(str(alert.state).capitalize(), "bad", alert.error)
    if alert.dead:
        return Health("Has dead letters", "bad")
    if alert.missed or alert.state is AlertState.OFF:
        return Health("Missed changes" if alert.missed else "Off", "warn")
    match alert.state:
        case AlertState.NEW:
            return Health("Nothing sent yet", "unknown")
        case AlertState.REMOVED:
            return Health("Removed", "unknown")
        case AlertState.SENDING:
            return Health("Sending", "busy")
        case other:
            return Health(str(other).capitalize(), "ok")


def sorted_alerts(found: Iterable[AlertStatus]) -> Sequence[AlertStatus]:
    """Sorts alerts by the severity of their states, the worst first, and then by name."""
    return sorted(found, key=lambda each: (_TONES.index(alert_health(each).tone), each.name))


def _is_open(notice: ShownNotice, status: Status, state: State) -> bool:
    builds = [each for each in status.builds if each.build == notice.build]
    match notice.kind:
        case "rollout_failed":
            return not any(
                each.number == notice.rollout and state.newer_rollout(each) is not None
                for each in state.rollouts
            )
        case "rollout_waits":
            return any(
                each.number == notice.rollout and each.waits for each in state.active_rollouts
            )
        case "build_stopped":
            return any(each.stopped is not None for each in builds)
        case "build_crashes":
            return any(each.trouble for each in builds)
        case "drift":
            live = (each for each in status.builds if each.role == "live")
            return any(drift.text == notice.text for each in live for drift in each.drifts)
        case "disk_full":
            return bool(status.disk)
        case "proof_differs":
            return state.serving.get(notice.pipeline) == notice.build
        case _:
            return True
