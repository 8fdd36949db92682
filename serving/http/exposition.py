"""Metrics in Prometheus's text format. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def family(
    name: str, kind: str, what: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> str:
    """Formats a metric with its help text and its type.

    `kind` is the type of the metric, and `what` is its help text. Each of the `samples` has labels
    and a value.
    """
    lines = [
        f"# HELP {name} {what}",
        f"# TYPE {name} {kind}",
        *(_sample_line(name, labels, value) for labels, value in samples),
    ]
    return "\n".join(lines) + "\n"


def _sample_line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{label}="{_escaped_text(text)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {value:.15g}" if pairs else f"{name} {value:.15g}"


def _escaped_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
