"""A dashboard for Grafana, and alert rules for Prometheus, for the metrics of `/metrics`. Pure.

A test checks that each expression uses only names and labels that the metrics define.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Columns of Grafana's grid, and the height of a chart and of a number in its rows.
_COLUMNS, _CHART_ROWS, _NUMBER_ROWS = 24, 8, 4


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard: a title, a PromQL expression, a legend, and a unit of Grafana.

    A panel without a legend shows a single number, and a panel with a legend shows a chart. The
    number is red if it is `worst` or greater.
    """

    title: str
    query: str
    legend: str = ""
    unit: str = "short"
    worst: float | None = None


PANELS = (
    Panel("Platform is up", "min(kappa_up)"),
    Panel("Generation", "max(kappa_generation)"),
    Panel("Jobs stopped", "sum(kappa_job_stopped)", worst=1),
    Panel("Rollouts waiting for approval", "sum(kappa_rollout_waits)"),
    Panel("Free disk", "min(kappa_disk_free_bytes)", unit="bytes"),
    Panel("Dead letters of alerts", "sum(kappa_alert_dead_letters)", worst=1),
    Panel("Freshness", "kappa_freshness_seconds", "{{pipeline}} ({{role}})", "s"),
    Panel(
        "Lag",
        "sum by (consumergroup) (kafka_consumergroup_lag)",
        "{{consumergroup}}",
    ),
    Panel("Time of a slice", "kappa_slice_duration_seconds", "{{pipeline}} ({{role}})", "s"),
    Panel(
        "Freshness by step",
        'kappa_slice_step_seconds{role="live"}',
        "{{pipeline}}: {{step}}",
        "s",
    ),
    Panel("Drift of events", "kappa_drift", "{{pipeline}}, {{topic}}: {{kind}}"),
    Panel("Rejects", "kappa_rejects", "{{pipeline}}: {{reason}}"),
    Panel(
        "Rollouts: share replayed", "kappa_replay_ratio", "{{pipeline}} {{build}}", "percentunit"
    ),
    Panel("Rollouts: records a second", "kappa_replay_rate", "{{pipeline}} {{build}}", "cps"),
    Panel("Maintained views", "kappa_view_seconds", "{{view}} ({{way}})", "s"),
    Panel("Sinks: behind", "kappa_sink_behind_seconds", "{{sink}}", "s"),
    Panel("Sinks: records", "rate(kappa_sink_records_total[5m])", "{{sink}}: {{what}}", "cps"),
    Panel("Alerts: messages", "rate(kappa_alert_delivered_total[5m])", "{{alert}}", "cps"),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert rule of Prometheus, which fires if an expression is true for some time.

    The expression is in PromQL, and `during` is the duration. `text` describes the problem; labels
    of the series are written as `{{ $labels.NAME }}`.
    """

    name: str
    query: str
    during: str
    severity: str
    text: str


RULES = (
    Rule(
        "KappaDown",
        "kappa_up == 0 or absent(kappa_up)",
        "1m",
        "critical",
        "No supervisor runs: kappa up -d",
    ),
    Rule(
        "KappaJobStopped",
        "kappa_job_stopped == 1",
        "0m",
        "critical",
        "The job of build {{ $labels.build }} has stopped for good: kappa status",
    ),
    Rule(
        "KappaStale",
        'kappa_freshness_seconds{role="live"} > 300 and on (build) kappa_paused == 0',
        "5m",
        "warning",
        "Readers of pipeline {{ $labels.pipeline }} see rows that are minutes old",
    ),
    Rule(
        "KappaDiskFull",
        "kappa_disk_full == 1",
        "0m",
        "critical",
        "The disk of the root is full, so jobs rest until there is space",
    ),
    Rule(
        "KappaDiskFillsUp",
        "predict_linear(kappa_disk_free_bytes[6h], 86400) < 0",
        "1h",
        "warning",
        "The disk of the root will be full within a day",
    ),
    Rule(
        "KappaNewRejects",
        'delta(kappa_rejected_records{role="live"}[10m]) > 0',
        "0m",
        "warning",
        "Pipeline {{ $labels.pipeline }} rejects records: kappa rejects list",
    ),
    Rule(
        "KappaDrift",
        'kappa_drift{role="live"} > 0',
        "0m",
        "warning",
        "Events of topic {{ $labels.topic }} are no longer as declared: kappa status",
    ),
    Rule(
        "KappaRolloutWaits",
        "kappa_rollout_waits == 1",
        "1h",
        "info",
        "A rollout of pipeline {{ $labels.pipeline }} is waiting for approval: kappa promote "
        "{{ $labels.pipeline }}",
    ),
    Rule(
        "KappaRolloutFailed",
        "increase(kappa_rollouts_failed_total[15m]) > 0",
        "0m",
        "warning",
        "A rollout of pipeline {{ $labels.pipeline }} has failed: kappa history "
        "{{ $labels.pipeline }}",
    ),
    Rule(
        "KappaClaimLost",
        "kappa_claim == 0",
        "0m",
        "critical",
        "Host {{ $labels.host }} has claimed the root: this host changes nothing there any more",
    ),
    Rule(
        "KappaOverflow",
        "kappa_overflowed_rows > 0",
        "0m",
        "warning",
        "Values of {{ $labels.table }}.{{ $labels.column }} do not fit their type",
    ),
    Rule(
        "KappaTopicUnread",
        "kappa_topics_unread > 0",
        "15m",
        "info",
        "Topics match {{ $labels.pattern }} and are not read: kappa topics join",
    ),
    Rule(
        "KappaSinkFails",
        "kappa_sink_failing == 1",
        "5m",
        "warning",
        "Sink {{ $labels.sink }} cannot send: kappa sinks",
    ),
    Rule(
        "KappaDeadLetters",
        "kappa_alert_dead_letters > 0",
        "0m",
        "warning",
        "Alert {{ $labels.alert }} has dead letters: kappa alerts list --dead",
    ),
)


def grafana_dashboard() -> str:
    """Returns the dashboard as JSON for Grafana's import. The text ends with a line break.

    The person who imports the dashboard chooses the data source.
    """
    panels, x, y, row = list[dict[str, Any]](), 0, 0, 0
    for number, each in enumerate(PANELS, start=1):
        width, height = (_COLUMNS // 2, _CHART_ROWS) if each.legend else (4, _NUMBER_ROWS)
        if x + width > _COLUMNS:
            x, y = 0, y + row
        panels.append(_panel(each, number, {"x": x, "y": y, "w": width, "h": height}))
        x, row = x + width, height
    dashboard = {
        "title": "Kappa",
        "uid": "kappa",
        "tags": ["kappa"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": panels,
    }
    return json.dumps(dashboard, indent=2) + "\n"


def prometheus_rules() -> str:
    """Returns the alert rules as a YAML file for Prometheus. The text ends with a line break."""
    lines = [
        "# Name this file in rule_files of prometheus.yml, and scrape /metrics of Kappa.",
        "groups:",
        "  - name: kappa",
        "    rules:",
    ]
    for each in RULES:
        # A string of JSON is one of YAML.
        lines += [
            f"      - alert: {each.name}",
            f"        expr: {json.dumps(each.query)}",
            f"        for: {each.during}",
            f"        labels: {{severity: {each.severity}}}",
            f"        annotations: {{summary: {json.dumps(each.text)}}}",
        ]
    return "\n".join(lines) + "\n"


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.worst is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.worst}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "id": number,
        "title": panel.title,
        "type": "timeseries" if panel.legend else "stat",
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "datasource": _DATASOURCE,
                "expr": panel.query,
                "legendFormat": panel.legend or "__auto",
            }
        ],
    }
