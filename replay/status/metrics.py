"""The metrics of `/metrics`, in the text format of Prometheus. Pure.

The metric of the lag has the same name and labels as in common exporters, because dashboards expect
them (`kafka_consumergroup_lag`). The build is the consumer group. Spark commits no offsets to the
broker, so a tool that asks the broker cannot show this lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.state import State
from kappa.replay.status.status import BuildStatus, Status
from kappa.serving.http.exposition import family
from kappa.serving.outlets.sinks.sink_status import SinkStatus
from kappa.state.frontier import Frontier


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """The facts from which the metrics are computed.

    `frontiers` contains the two newest frontiers of each build. `rejects` maps (pipeline, reason)
    to the number of rejects of the serving builds. `alerts` maps the name of an alert to the
    numbers of delivered messages, of waiting messages, and of dead letters. `sinks` are the sinks
    that are served, and sinks that have ended. `free_bytes` is the free space of the root's disk,
    or None if unknown. For a root in a bucket, `claim` is (host that has claimed the root, True if
    this is that host).
    """

    state: State
    status: Status
    frontiers: Mapping[str, tuple[Frontier, Frontier | None]]
    rejects: Mapping[tuple[str, str], int]
    supervised: bool
    alerts: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    sinks: tuple[SinkStatus, ...] = ()
    free_bytes: int | None = None
    claim: tuple[str, bool] | None = None


def metrics_text(seen: MetricFacts, now: datetime) -> str:
    """Returns all metrics as text, each with its help text and its type."""
    return "".join(family(*each) for each in _metric_families(seen, now))


def _metric_families(
    seen: MetricFacts, now: datetime
) -> Iterator[tuple[str, str, str, Iterable[tuple[Mapping[str, str], float]]]]:
    builds = seen.status.builds
    candidates = [each for each in builds if each.rollout is not None]
    yield "kappa_up", "gauge", "1 while a supervisor runs.", [({}, float(seen.supervised))]
    yield (
        "kappa_generation",
        "gauge",
        "Number of the serving map that readers see; a promote and an undo both make a higher one.",
        [({}, float(seen.state.generation))],
    )
    yield (
        "kappa_disk_free_bytes",
        "gauge",
        "Free bytes of the disk that has the root, or this host's part of a root in a bucket.",
        [] if seen.free_bytes is None else [({}, float(seen.free_bytes))],
    )
    yield (
        "kappa_disk_full",
        "gauge",
        "1 while jobs rest because the disk of the root is full.",
        [({}, float(bool(seen.status.disk)))],
    )
    yield (
        "kappa_claim",
        "gauge",
        "The host that has claimed a root in a bucket: 1 if that is this host, else 0.",
        [] if seen.claim is None else [({"host": seen.claim[0]}, float(seen.claim[1]))],
    )
    yield (
        "kappa_topics_unread",
        "gauge",
        "Topics that match a pattern of a pipeline and have not joined it.",
        [
            ({"pipeline": pipeline, "pattern": pattern}, float(count))
            for (pipeline, pattern), count in sorted(
                Counter((each.pipeline, each.pattern) for each in seen.status.unread).items()
            )
        ],
    )
    yield (
        "kappa_build_info",
        "gauge",
        "1 for each build whose job is to run.",
        [({**_build_labels(each), "version": each.version}, 1.0) for each in builds],
    )
    yield (
        "kafka_consumergroup_lag",
        "gauge",
        "Offsets between what a build's readers see and the end of a partition.",
        list(_partition_lags(seen.status)),
    )
    yield (
        "kappa_rollout_waits",
        "gauge",
        "1 where a candidate has passed its verification and is waiting for approval, else 0.",
        [
            (_build_labels(each), float(each.rollout.waits))
            for each in candidates
            if each.rollout is not None
        ],
    )
    failed = Counter(each.pipeline for each in seen.state.rollouts if each.phase is Phase.FAILED)
    yield (
        "kappa_rollouts_failed_total",
        "counter",
        "Rollouts of a pipeline that have failed.",
        [
            ({"pipeline": name}, float(failed[name]))
            for name in sorted({each.pipeline for each in seen.state.rollouts})
        ],
    )
    yield (
        "kappa_replay_records",
        "gauge",
        "Offsets that a build has folded since its origin.",
        [(_build_labels(each), float(each.folded)) for each in candidates],
    )
    yield (
        "kappa_replay_ratio",
        "gauge",
        "Share of what a candidate's job has to read that it has folded, 0 to 1.",
        [
            (_build_labels(each), each.read[0] / max(1, each.read[1]))
            for each in candidates
            if each.read is not None
        ],
    )
    yield (
        "kappa_replay_rate",
        "gauge",
        "Offsets a second that a candidate folds, lately.",
        [(_build_labels(each), each.rate) for each in candidates if each.rate is not None],
    )
    yield (
        "kappa_slice_duration_seconds",
        "gauge",
        (
            "From one published frontier of a build to the next: how long its last slice took, "
            "with what it waited for."
        ),
        [
            (_build_labels(each), seconds)
            for each in builds
            if (seconds := _last_slice(seen.frontiers.get(each.build))) is not None
        ],
    )
    yield (
        "kappa_slice_step_seconds",
        "gauge",
        (
            "Mean seconds per step of a build's last slices; wait is from the newest record to the "
            "slice's beginning."
        ),
        [
            ({**_build_labels(each), "step": step}, seconds)
            for each in builds
            if each.step_times is not None
            for step, seconds in each.step_times.seconds.items()
        ],
    )
    yield (
        "kappa_freshness_seconds",
        "gauge",
        "Age of what a build's readers see: 0 if nothing is behind it, else since its frontier.",
        [
            (_build_labels(each), age)
            for each in builds
            if (age := each.age_seconds(now)) is not None
        ],
    )
    yield (
        "kappa_promotes_total",
        "counter",
        "Switches of what serves, undos among them.",
        [({}, float(len(seen.state.served)))],
    )
    yield (
        "kappa_rejects",
        "gauge",
        "Records that what serves has rejected, by reason.",
        [
            ({"pipeline": name, "reason": why}, float(count))
            for (name, why), count in seen.rejects.items()
        ],
    )
    yield (
        "kappa_overflowed_rows",
        "gauge",
        "Rows that are served in which a sum does not fit its type, or an array 16 MiB.",
        [
            (
                {"pipeline": one.pipeline, "table": one.table, "column": one.column},
                float(one.rows),
            )
            for each in builds
            for one in each.overflows
        ],
    )
    yield (
        "kappa_rejected_records",
        "gauge",
        "Records that a build has rejected since its origin.",
        [(_build_labels(each), float(each.rejected)) for each in builds],
    )
    yield (
        "kappa_duplicate_records",
        "gauge",
        "Records that a build has counted as duplicates since its origin.",
        [(_build_labels(each), float(each.duplicate)) for each in builds],
    )
    yield (
        "kappa_paused",
        "gauge",
        "1 where a build's pipeline is paused: its job does not run.",
        [(_build_labels(each), float(each.pause is not None)) for each in builds],
    )
    yield (
        "kappa_job_stopped",
        "gauge",
        "1 where a build's job has stopped for good.",
        [(_build_labels(each), float(each.stopped is not None)) for each in builds],
    )
    yield (
        "kappa_drift",
        "gauge",
        "Ways in which events of a topic are no longer as a build's pipeline declares them.",
        [
            ({**_build_labels(each), "topic": topic, "kind": str(kind)}, float(count))
            for each in builds
            for (topic, kind), count in sorted(
                Counter((one.topic, one.kind) for one in each.drifts).items()
            )
        ],
    )
    for name, what, of_view in (
        ("seconds", "How long the last slice that computed a view took for it.", "seconds"),
        ("changed_rows", "Rows of a view that the last slice that computed it changed.", "rows"),
        (
            "touched_keys",
            "Keys of a view that the last slice that computed it touched; a whole view has none.",
            "touched",
        ),
    ):
        yield (
            f"kappa_view_{name}",
            "gauge",
            what,
            [
                (
                    {**_build_labels(each), "view": view, "way": cost.way},
                    float(getattr(cost, of_view)),
                )
                for each in builds
                for view, cost in each.view_costs.items()
                if getattr(cost, of_view) is not None
            ],
        )
    for place, (name, kind, what) in enumerate(
        (
            ("delivered_total", "counter", "Messages of an alert that were received."),
            ("waiting", "gauge", "Messages of an alert that wait for its receiver."),
            ("dead_letters", "gauge", "Messages of an alert that were given up, and are kept."),
        )
    ):
        yield (
            f"kappa_alert_{name}",
            kind,
            what,
            [({"alert": alert}, float(of[place])) for alert, of in seen.alerts.items()],
        )
    yield (
        "kappa_sink_records_total",
        "counter",
        "Records that a sink has sent: rows written, and keys deleted.",
        [
            ({"sink": each.known.topic, "what": what}, float(count))
            for each in seen.sinks
            for what, count in (("written", each.known.written), ("deleted", each.known.deleted))
        ],
    )
    yield (
        "kappa_sink_behind_seconds",
        "gauge",
        "How long ago a sink had all that is served; 0: it has.",
        [
            ({"sink": each.known.topic}, each.behind_seconds)
            for each in seen.sinks
            if each.behind_seconds is not None
        ],
    )
    yield (
        "kappa_sink_failing",
        "gauge",
        "1 where a sink cannot send now, or another courier has taken its topic over.",
        [({"sink": each.known.topic}, float(bool(each.known.error))) for each in seen.sinks],
    )


def _build_labels(build: BuildStatus) -> Mapping[str, str]:
    return {"pipeline": build.pipeline, "build": build.build, "role": build.role}


def _partition_lags(status: Status) -> Iterator[tuple[Mapping[str, str], float]]:
    for build in status.builds if status.end is not None else ():
        assert status.end is not None, "see above"
        for topic, partition, end in status.end.only(build.topics).items():
            yield (
                {"consumergroup": build.build, "topic": topic, "partition": str(partition)},
                float(max(0, end - build.offsets.at(topic, partition))),
            )


def _last_slice(frontiers: tuple[Frontier, Frontier | None] | None) -> float | None:
    newest, before = frontiers or (None, None)
    if newest is None or before is None:
        return None
    return max(
        0.0,
        (
            datetime.fromisoformat(newest.published_at)
            - datetime.fromisoformat(before.published_at)
        ).total_seconds(),
    )
