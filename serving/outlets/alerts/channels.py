"""The channel of an alert: by its address, and by the settings of the platform that sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kappa.base.errors import SettingsError
from kappa.base.sections import AlertSettings
from kappa.declare.alert import COMMAND, PAGE, AlertBirth
from kappa.serving.outlets.alerts.channel import Channel, Unready
from kappa.serving.outlets.alerts.program import Program
from kappa.serving.outlets.alerts.shown import ShownOnPage
from kappa.serving.outlets.alerts.signature import keys_of
from kappa.serving.outlets.alerts.webhook import Webhook
from kappa.state.store import Store

_Value = TypeVar("_Value")


def channel_of(store: Store, settings: AlertSettings, alert: AlertBirth) -> Channel:
    """Returns the channel of an alert.

    A URL of the settings takes the place of any declared address: one place sends elsewhere than
    another so. If a setting is missing or wrong, messages wait, with that as the reason.
    """
    timeout = settings.timeout_seconds
    url = _of(settings.urls, alert.name)
    if url is None and alert.to == PAGE:
        return ShownOnPage(store, alert.name)
    if url is None and alert.to.startswith(COMMAND):
        name = alert.to.removeprefix(COMMAND)
        command = _of(settings.commands, name)
        if not command:
            return Unready(
                f'there is no command {name}: set {name} = ["PROGRAM"] in [alerts.commands]'
            )
        return Program(name, command, timeout_seconds=timeout)
    secret = _of(settings.secrets, alert.name) or settings.secret
    if not secret.strip():
        return Unready("there is no secret to sign with: set [alerts] secret in kappa.toml")
    try:
        keys = keys_of(secret)
        return Webhook(alert.to if url is None else url, keys, timeout_seconds=timeout)
    except SettingsError as error:
        return Unready(str(error))


def _of(settings: Mapping[str, _Value], name: str) -> _Value | None:
    """Returns the setting of a name; a variable of the environment has _ where that has -."""
    return settings.get(name, settings.get(name.replace("-", "_")))
