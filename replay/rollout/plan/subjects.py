"""The subjects that a project pins, and how far the schema registry has moved on from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from kappa.base.errors import KappaError
from kappa.base.sections import RegistrySettings
from kappa.declare.formats.topic_formats import pin_of
from kappa.declare.pipeline import Pipeline

# A plan waits no longer for one answer, since it can do without.
_MOST_SECONDS = 2.0


def pinned_subjects(
    settings: RegistrySettings, pipelines: Iterable[Pipeline]
) -> Mapping[str, tuple[int, int | None]]:
    """Returns the pinned and the newest version of each subject that pipelines read by.

    The newest one is None if the registry does not say it. Nothing is returned without a registry.
    """
    pins = {
        pin.subject: pin.version
        for pipeline in pipelines
        for topic in pipeline.topics
        for form in topic.formats
        if (pin := pin_of(form)) is not None
    }
    if not pins or settings.url is None:
        return {}
    from kappa.kafka.registry import RegistryClient  # noqa: PLC0415  # most plans do without

    quick = structs.replace(settings, timeout_seconds=min(settings.timeout_seconds, _MOST_SECONDS))
    found: dict[str, tuple[int, int | None]] = {
        subject: (pinned, None) for subject, pinned in pins.items()
    }
    try:
        client = RegistryClient(quick)
        for subject, pinned in pins.items():
            found[subject] = (pinned, client.newest(subject))
    except KappaError:
        # One that is away is waited for once.
        return found
    return found
