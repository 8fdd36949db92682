"""The number of examples of a property test, in proportion to the run's profile."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Those of `make test` (tests/conftest.py); `make faults` has ten times as many.
_USUAL = 50


def examples(number: int, *, suppress: tuple[HealthCheck, ...] = ()) -> settings:
    """Returns settings with `number` examples in `make test`, and a proportional number elsewhere.

    Tests that use this function have the marker `law`, so that `make faults` runs them with more
    examples.
    """
    return settings(
        max_examples=max(1, number * settings.default.max_examples // _USUAL),
        suppress_health_check=(HealthCheck.too_slow, *suppress),
    )
