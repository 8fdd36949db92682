"""Laws of settings: flags beat the environment, it beats the file, unknown keys are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.base.errors import SettingsError
from kappa.base.settings import load_settings

FILE = """
[kafka]
bootstrap_servers = "file:9092"
heap = "300m"
[rollout]
soak = "90s"
hold_attempts = 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kappa.toml").write_text(FILE)
    return tmp_path


def test_the_environment_beats_the_file_key_by_key(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA__KAFKA__BOOTSTRAP_SERVERS", "environment:9092")
    monkeypatch.setenv("KAPPA__KAFKA__OPTIONS", '{"security.protocol": "SSL"}')
    monkeypatch.setenv("KAPPA__ROLLOUT__SOAK", "2h")

    settings = load_settings(project)

    assert (settings.kafka.bootstrap_servers, settings.kafka.heap, settings.kafka.options) == (
        "environment:9092",
        "300m",
        {"security.protocol": "SSL"},
    )
    assert (
        settings.rollout.soak_seconds,
        settings.rollout.hold_attempts,
        settings.rollout.hold_seconds,
    ) == (7200.0, 2, 10.0)


def test_a_flag_beats_both_and_one_that_was_not_given_beats_neither(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "kappa.toml").write_text('root = "by_file"')
    monkeypatch.setenv("KAPPA__ROOT", "by_environment")

    assert load_settings(project, root="by_flag").root == "by_flag"
    assert load_settings(project, root=None).root == "by_environment"


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        (
            "KAPPA__KAFKA__BOOTSTRAP_SERVER",
            "x",
            "kafka.bootstrap_server is no setting",
            "did you mean kafka.bootstrap_servers?",
        ),
        (
            "KAPPA__ROLLOUT__SOAK",
            "long",
            "setting rollout.soak is 'long'",
            "KAPPA__ROLLOUT__SOAK; how long the build that served before",
        ),
        (
            "KAPPA__ROLLOUT__HOLD_ATTEMPTS",
            "0",
            "setting rollout.hold_attempts is '0'",
            "KAPPA__ROLLOUT__HOLD_ATTEMPTS",
        ),
        ("KAPPA__KAFKAA__HEAP", "1g", "kafkaa is no setting", "did you mean kafka?"),
        ("KAPPA__ROTO", "x", "roto is no setting", "did you mean root?"),
        ("kappa__roto", "x", "roto is no setting", "did you mean root?"),
        ("KAPPA__PROJECT", "/tmp", "project is no setting", "rollout"),
        (
            "KAPPA__KAFKA",
            "{",
            'the environment cannot be read: error parsing value for field "kafka"',
            "KAPPA__KAFKA__HEAP=1g",
        ),
        (
            "KAPPA__KAFKA__OPTIONS",
            "{",
            'the environment cannot be read: error parsing value for field "kafka"',
            "KAPPA__KAFKA__OPTIONS='{...}'",
        ),
    ],
)
def test_a_slip_in_the_environment_is_one_sentence_with_a_hint(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str, hint: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(SettingsError) as told:
        load_settings(project)

    assert told.value.message.startswith(message)
    assert hint in told.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[serve]\ntoken = 748159263", "setting serve.token is of the type int"),
        ("serve = 748159263", "setting serve is of the type int"),
        ('serve = "token=748159263"', "setting serve is of the type str"),
        ("[serve]\ntoken = [748159263]", "setting serve.token is of the type list"),
        (
            '[kafka.options]\n"sasl.password" = 748159263',
            "setting kafka.options.sasl.password is of the type int",
        ),
        ('[kafka]\noptions = "748159263"', "setting kafka.options is of the type str"),
        ("kafka = [748159263]", "setting kafka is of the type list"),
        ("[engine]\ncores = -748", "setting engine.cores is -748"),
        ('[serve]\ntoken = "748159263', "cannot be read"),
    ],
)
def test_an_error_about_a_secret_shows_no_value(project: Path, text: str, message: str) -> None:
    (project / "kappa.toml").write_text(text)

    with pytest.raises(SettingsError) as told:
        load_settings(project)

    assert message in told.value.message
    assert "748159263" not in str(told.value)


@pytest.mark.parametrize(
    "value", ['{"token": 748159263}', '"748159263"', "748159263", "{748159263"]
)
@pytest.mark.parametrize("name", ["KAPPA__SERVE", "KAPPA__KAFKA", "KAPPA__KAFKA__OPTIONS"])
def test_an_error_about_a_secret_in_the_environment_shows_no_value(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(SettingsError) as told:
        load_settings(project)

    assert "748159263" not in str(told.value)


def test_settings_that_are_printed_show_no_secret(project: Path) -> None:
    (project / "kappa.toml").write_text(
        '[serve]\ntoken = "748159263"\n[kafka.options]\n"sasl.password" = "748159263"\n'
    )

    assert "748159263" not in repr(load_settings(project))
