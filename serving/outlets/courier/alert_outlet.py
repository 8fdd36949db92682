"""An alert at work: the steps of its delivery, for as long as a serving build declares it."""

from __future__ import annotations

import threading
from contextlib import suppress

from kappa.base.errors import KappaError
from kappa.base.settings import Settings
from kappa.declare.alert import AlertBirth
from kappa.serving.outlets.alerts.channels import channel_of
from kappa.serving.outlets.alerts.delivery import AlertDelivery
from kappa.serving.outlets.alerts.patience import Rules
from kappa.serving.outlets.courier.outlet import served_outlets, tell
from kappa.serving.query.reader.reader import Limits
from kappa.state.build import read_birth
from kappa.state.store import Store

# The thread looks so often for a stop, for another declaration, and for dead letters.
_LOOK_SECONDS = 0.5
_FIRST_SECONDS, _LONGEST_SECONDS = 0.5, 30.0


class AlertOutlet:
    """The delivery of one alert, by one thread."""

    def __init__(self, store: Store, settings: Settings, name: str) -> None:
        self._store = store
        self._settings = settings
        self._name = name
        self._told = ""

    def run(self, stop: threading.Event) -> None:
        """Delivers what is served, until asked to stop or the alert is served no more."""
        while not stop.is_set():
            try:
                alert = self._declared()
                if alert is None:
                    break
                self._deliver(alert, stop)
            except (KappaError, OSError) as error:
                self._tell(error)
                stop.wait(_LONGEST_SECONDS)

    def _declared(self) -> AlertBirth | None:
        """Returns the alert of the build that serves, or None if none has it."""
        birth = served_outlets(self._store).get(f"alert {self._name}")
        alerts = () if birth is None else birth.alerts
        return next((each for each in alerts if each.name == self._name), None)

    def _deliver(self, alert: AlertBirth, stop: threading.Event) -> None:
        """Takes steps while the alert is declared as it is."""
        delivery = AlertDelivery(
            self._store,
            alert,
            channel_of(self._store, self._settings.alerts, alert),
            Rules.of(self._settings.alerts),
            limits=Limits.of(self._settings.verify, self._store),
            is_of=lambda build: alert in read_birth(self._store, build).alerts,
        )
        failures = 0
        while not stop.is_set() and self._declared() == alert:
            try:
                due = delivery.step()
                if failures:
                    delivery.report("")
                failures = 0
            except (KappaError, OSError) as error:
                due = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(failures, 10))
                failures += 1
                self._tell(error)
                # A disk that is full was just told of.
                with suppress(KappaError, OSError):
                    delivery.report(str(error))
                stop.wait(due)
                continue
            if due is None:
                delivery.wait(_LOOK_SECONDS)
            else:
                stop.wait(min(due, _LOOK_SECONDS))

    def _tell(self, error: KappaError | OSError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            tell(f"alert {self._name}: {error}")
