"""The words for the states of builds, rollouts, outlets, topics and notices. Pure.

All pages take the words from here, so that one state has one word on every page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.status.alerts import AlertState, AlertStatus
from kappa.replay.status.status import BuildStatus
from kappa.serving.outlets.sinks.sink_status import SinkStatus

# The tones in the order of lists: what needs a person comes first.
TONES = ("bad", "warn", "unknown", "busy", "ok")
# A job that has published within this time is at work on the missing records.
_AT_WORK_SECONDS = 10.0
# A build that needs longer for its lag, at its known rate, is late although it is at work.
_LATE_SECONDS = 60.0
# The tones of the phases with which a rollout ends; every other phase is busy.
_PHASE_TONES = {Phase.FAILED: "bad", Phase.ABANDONED: "unknown"}
# The state of a build that has not folded records for a while; the graph tells the lag beside it.
BEHIND, _CANNOT_SEND = "Behind", "Cannot send"
# The words of pages for the roles of builds, which commands and programs call live and idle.
_ROLE_WORDS = {"live": "serving", "idle": "kept"}


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a build or of another thing in a few words.

    `tone` is ok, busy, warn, bad or unknown; the page shows a different shape for each tone. `why`
    is the reason, or "".
    """

    word: str
    tone: str
    why: str = ""


def health_of(
    build: BuildStatus, now: datetime, *, rate: float | None, supervised: bool = True
) -> Health:
    """Returns the health of a build. `supervised` is True if a supervisor is running.

    `rate` is the number of offsets that the build folds per second, or None if it is not known yet.
    """
    age = build.age_seconds(now)
    if build.stopped is not None:
        return Health("Stopped", "bad", build.stopped.text)
    if build.pause is not None:
        return Health("Paused", "warn", build.pause.text)
    if build.trouble:
        return Health("In trouble", "bad", build.trouble)
    if not supervised:
        return Health("Not running", "warn", "kappa is not up: kappa up -d")
    if build.lag is None:
        return Health("Lag unknown", "unknown", "the broker was not asked")
    if build.held_back:
        return Health("Held back", "warn", "by a transaction that is open")
    if build.lag <= 0:
        return Health("Up to date", "ok")
    if build.rests:
        return Health("At rest", "ok", "it folds in turns, and at once for an undo")
    if age is None or age >= _AT_WORK_SECONDS:
        return Health(BEHIND, "warn")
    if rate is None:
        return Health("Measuring", "unknown", "its rate is not known yet")
    if build.lag > rate * _LATE_SECONDS:
        return Health(BEHIND, "warn", "its lag is more than it folds in a minute")
    return Health("Following", "ok")


def rollout_health(rollout: Rollout, *, serves: bool = False) -> Health:
    """Returns the state of a rollout. `serves` is True if its pipeline serves by it now."""
    word = rollout.phase_text.capitalize()
    match rollout.phase:
        case Phase.SERVED:
            return serving_health(now=serves)
        case Phase.READY if rollout.waits:
            return Health(word, "warn", "it was replayed and verified")
        case phase:
            return Health(word, _PHASE_TONES.get(phase, "busy"))


def phase_health(build: BuildStatus) -> Health:
    """Returns the health of a candidate: an error of its job, or the phase of its rollout."""
    assert build.rollout is not None, "a candidate has one"
    if build.stopped is not None or build.trouble:
        return Health(
            "In trouble",
            "bad",
            build.stopped.text if build.stopped is not None else build.trouble,
        )
    return rollout_health(build.rollout)


def role_word(role: str) -> str:
    """Returns the word of pages for the role of a build, such as serving, candidate or kept."""
    return _ROLE_WORDS.get(role, role)


def serving_health(*, now: bool) -> Health:
    """Returns the state of what serves now, or of what served before."""
    return Health("Serving", "ok") if now else Health("Served", "unknown")


def broken_health(why: str) -> Health:
    """Returns the state of a table or view that cannot be read, with the reason."""
    return Health("Broken", "bad", why)


def topic_health(rate: float | None, *, is_there: bool) -> Health:
    """Returns the state of a topic. `is_there` is True if the broker has the topic.

    `rate` is the number of new offsets per second, or None if it is not known yet.
    """
    if not is_there:
        return Health("Not on the broker", "bad")
    if rate is None:
        return Health("Measuring", "unknown", "its rate is not known yet")
    if rate:
        return Health("Receives records", "ok")
    return Health("Quiet now", "unknown", "no record has come in the last seconds")


def sink_health(sink: SinkStatus) -> Health:
    """Returns the state of a sink, with the error if any."""
    if sink.known.error:
        return Health(_CANNOT_SEND, "bad", sink.known.error)
    match sink.state:
        case "follows":
            return Health("Up to date", "ok")
        case "starts" | "retries":
            return Health("Sending", "busy")
        case "off":
            return Health("Off", "warn")
        case "waits":
            return Health("Not running", "warn", "no courier runs")
        case "fenced":
            return Health("Fenced", "warn", "another courier writes to its topic")
        case _:
            return Health("Removed", "unknown")


def alert_health(alert: AlertStatus) -> Health:
    """Returns the state of an alert, with the error if any."""
    if alert.error:
        return Health(_CANNOT_SEND, "bad", alert.error)
    if alert.dead:
        return Health("Has dead letters", "bad")
    if alert.missed:
        return Health("Missed changes", "warn")
    match alert.state:
        case AlertState.OFF:
            return Health("Off", "warn")
        case AlertState.NEW:
            return Health("Nothing sent yet", "unknown")
        case AlertState.REMOVED:
            return Health("Removed", "unknown")
        case AlertState.FOLLOWING:
            return Health("Up to date", "ok")
        case _:
            return Health("Sending", "busy")


def matter_health(*, is_open: bool, is_critical: bool) -> Health:
    """Returns the state of a notice: Critical, Warning, or Resolved."""
    if not is_open:
        return Health("Resolved", "ok")
    return Health("Critical", "bad") if is_critical else Health("Warning", "warn")
