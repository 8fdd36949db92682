"""Laws of `kappa config show`: each value with its origin, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typing_in import Kappa, pretend_up

from kappa.base.settings import (
    HIDDEN,
    changed_settings,
    file_settings,
    load_settings,
    setting_origins,
)
from kappa.state.store import Store

FILE = '''# The settings of a shop.
root = "data"

[kafka]
options = { "acks" = "1" }
heap = "300m"

[engine.conf]
"spark.sql.shuffle.partitions" = "4"
"spark.ssl.keyPassword" = "hunter2hunter2"

[collect]
topics = [
  "hits",  # a comment
  "clicks",
]
udp = """
127.0.0.1:9"""
listen = "127.0.0.1:9000"
[collect.sources.web]
token = "s3cret-s3cret-s3cret"
rate = 5
[collect.pull.plant]
url = "https://ada:s3cret-password@plant.example/events"
'''
SECRETS = ("hunter2", "s3cret", "acks=", '"1"')


@pytest.fixture
def project(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (project / "kappa.toml").write_text(FILE)
    monkeypatch.chdir(project)
    return project


@pytest.mark.parametrize(
    ("name", "value", "origin"),
    [
        ("root", "elsewhere", "--root"),
        ("kafka.heap", "1g", "KAPPA__KAFKA"),
        ("kafka.options.acks", HIDDEN, "kappa.toml:5"),
        ("kafka.options.linger.ms", HIDDEN, "KAPPA__KAFKA"),
        ("engine.cores", 3, "kappa__engine__cores"),
        ("engine.conf.spark.sql.shuffle.partitions", "4", "kappa.toml:9"),
        ("collect.topics", ["hits", "clicks"], "kappa.toml:13"),
        ("collect.udp", "127.0.0.1:9", "kappa.toml:17"),
        ("collect.listen", "127.0.0.1:9000", "kappa.toml:19"),
        ("collect.sources.web.token", HIDDEN, "kappa.toml:21"),
        ("collect.sources.web.rate", 5, "kappa.toml:22"),
        ("collect.sources.web.topics", [], "default"),
        ("serve.token", HIDDEN, "KAPPA__SERVE__TOKEN"),
        ("alerts.secret", "", "default"),
        ("rollout.soak", "1h", "default"),
    ],
)
def test_each_setting_has_its_origin(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object, origin: str
) -> None:
    monkeypatch.setenv("KAPPA__KAFKA", '{"heap": "1g", "options": {"linger.ms": "5"}}')
    monkeypatch.setenv("kappa__engine__cores", "3")
    monkeypatch.setenv("KAPPA__SERVE__TOKEN", "a-long-token-of-a-server")
    (project / "kappa.toml").write_text(FILE.replace('"spark.ssl.keyPassword"', "# "))
    shown = setting_origins(load_settings(project, root="elsewhere"), root="elsewhere")

    found = {each.name: (each.value, each.origin) for each in shown}
    assert found[name] == (value, origin)


def test_no_form_shows_a_secret(
    kappa: Kappa, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "kappa.toml").write_text(FILE.replace('"spark.ssl.keyPassword"', "# "))
    monkeypatch.setenv("KAPPA__REGISTRY__PASSWORD", "hunter2hunter2")
    monkeypatch.setenv("KAPPA__ENGINE__CONF", '{"spark.ssl.keyPassword": "hunter2hunter2"}')
    for form in ("table", "json", "csv", "jsonl"):
        code, out, err = kappa("config", "show", "--origin", "-o", form)
        assert code == 0
        assert not [secret for secret in SECRETS if secret in out + err]
        assert "engine.conf.spark.ssl.keyPassword" in out


def test_origins_are_shown_when_asked_for(kappa: Kappa, project: Path) -> None:
    (project / "kappa.toml").write_text('[kafka]\nheap = "1g"\n')
    assert "kappa.toml:2" not in kappa("config", "show")[1]
    assert "kappa.toml:2" in kappa("config", "show", "--origin")[1]
    (heap,) = (
        each
        for each in json.loads(kappa("config", "show", "-o", "json")[1])
        if each["setting"] == "kafka.heap"
    )
    assert [*heap.values()] == ["kafka.heap", "1g", "kappa.toml:2", False]


def test_changed_settings_are_named() -> None:
    before = {"a": "1", "b": "2", "c": "3"}

    assert changed_settings(before, {"a": "1", "b": "4", "d": "5"}) == ("b", "c", "d")


def test_a_change_since_the_start_is_said(kappa: Kappa, project: Path) -> None:
    """`kappa config show`, `kappa status` and `kappa up -d` report the change."""
    (project / "kappa.toml").write_text('[kafka]\nheap = "1g"\n')
    pretend_up(Store(project / ".kappa"), file_settings(project))
    assert "changed since" not in "".join(kappa("status")[1:])
    assert "changed since" not in "".join(kappa("config", "show")[1:])

    with (project / "kappa.toml").open("a") as file:
        file.write('[collect]\nlisten = "127.0.0.1:9000"\n')
    said = (
        "kappa.toml changed since the start: restart with kappa down && kappa up -d: collect.listen"
    )
    assert said in kappa("status")[1]
    assert json.loads(kappa("status", "-o", "json")[1])["settings_changed_since_start"] == [
        "collect.listen"
    ]
    assert said in kappa("config", "show")[2]
    assert said in kappa("up", "-d")[2]
