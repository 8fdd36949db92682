"""The supervisor's loop: a system error ends neither the loop nor the jobs."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from kappa.base.errors import Broken, ExitCode, KappaError, Superseded
from kappa.commands.app import run_command
from kappa.replay.platform.child import ended_message
from kappa.replay.platform.messages import failure, message_printer, warning
from kappa.replay.platform.start import last_line
from kappa.replay.platform.supervisor import _run_loop, main
from kappa.replay.rollout.state import State
from kappa.replay.status.logs import level_of
from kappa.replay.status.run_records import RUNNING, running_at
from kappa.state.files.claim import DiskControl
from kappa.state.store import Store


class Ticks:
    """A controller whose ticks raise these errors in turn, and then end the loop."""

    def __init__(self, *errors: Exception) -> None:
        self.state = State()
        self.waits: dict[int, str] = {}
        self.requested = False
        self.errors = list(errors)

    def tick(self) -> State:
        if self.errors:
            raise self.errors.pop(0)
        self.requested = True
        return self.state


def run_loop(folder: Path, ticks: Ticks, said: list[str] | None = None, **given) -> list[str]:
    """Runs the loop with children that are all well, or as `given`; returns its messages."""
    said = [] if said is None else said
    well = dict.fromkeys(("ensure_running", "reconcile_jobs", "report"), lambda *_, **__: None)
    well |= {"ensure_space": lambda: True, "update_resting": lambda *_: frozenset()}
    well |= {"woken": {}, "aligning": frozenset(), "jobs": frozenset(), "is_calm": True}
    platform = SimpleNamespace(**{"bootstrap_servers": "localhost:9092", **well, **given})
    http, running = SimpleNamespace(**well), platform.ensure_running
    services = SimpleNamespace(http=http, ensure_running=running)
    _run_loop(
        *(Store(folder.as_uri()), platform, ticks, platform, platform, services),
        *(platform, platform, said.append, ticks, {"kafka.heap": '"1g"'}),
    )
    return said


@pytest.mark.slow
def test_an_error_of_the_machine_is_told_once(tmp_path: Path) -> None:
    full = OSError(11, "Resource temporarily unavailable")

    said = run_loop(tmp_path, Ticks(full, full))

    assert [line for line in said if "Resource" in line] == [str(full)]


@pytest.mark.parametrize("has_space", [True, False])
def test_on_a_full_disk_jobs_rest(tmp_path: Path, has_space: bool, monkeypatch) -> None:
    did: list[object] = []
    monkeypatch.setattr(State, "wanted_jobs", lambda _state: {"shop-1", "shop-2"})
    run_loop(
        *(tmp_path, Ticks()),
        ensure_running=lambda *_, has_space, **__: did.append(has_space),
        reconcile_jobs=lambda builds, *_, **__: did.append(sorted(builds)),
        ensure_space=lambda: has_space,
        update_resting=lambda *_: frozenset({"shop-2"}),
    )

    # The broker, the jobs, the services.
    assert did[:3] == [has_space, ["shop-1"] if has_space else [], has_space]


@pytest.mark.slow
def test_a_platform_is_announced_later(tmp_path: Path) -> None:
    in_its_place = Store(tmp_path).path(RUNNING) / "full"
    in_its_place.mkdir(parents=True)

    class Mended(Ticks):
        def tick(self) -> State:
            if len(self.errors) == 1:
                in_its_place.rmdir()
                in_its_place.parent.rmdir()
            return super().tick()

    away = KappaError("the broker is away")
    said = run_loop(tmp_path, Mended(away, away, away))

    assert [line for line in said if "could not write" in line and RUNNING in line] == said[1:2]
    assert [line for line in said if line.startswith("up: Kafka at localhost:9092")] == said[2:]
    running = running_at(Store(tmp_path))
    assert running.settings == {"kafka.heap": '"1g"'}


@pytest.mark.parametrize("place", ["run", "logs"])
def test_what_the_machine_refuses_before_the_loop_is_a_sentence(place, tmp_path, capsys) -> None:
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / place).touch()
    started = ["--project", str(tmp_path), "--root", str(tmp_path / "root")]

    refused = "could not lock " if place == "run" else "kappa cannot run: "
    if place == "run":
        assert main([*started, "--take_over", "0"]) == ExitCode.FAILED
        assert capsys.readouterr().err.startswith(f"error: {refused}")
    # A detached one fails to look for another one that is up, which is a sentence, too.
    for detach in ([], ["-d"]) if place == "logs" else ([],):
        assert run_command([*started, "up", *detach]) == ExitCode.FAILED
        said = capsys.readouterr().err
        assert refused in said
        assert str(tmp_path / "root" / place) in "".join(said.split())
        assert "hint: see whether the disk is full" in said


def test_a_wrong_address_of_notices_is_told_first(tmp_path: Path, capsys) -> None:
    """A wrong address is reported before anything has begun."""
    (tmp_path / "kappa.toml").write_text('[notify]\nto = "ops"\n')

    assert main(["--project", str(tmp_path), "--root", "r", "--take_over", "0"]) == ExitCode.USAGE

    assert "error: notify.to of kappa.toml goes to 'ops'" in capsys.readouterr().err
    assert not (tmp_path / "r" / "run").exists()


def test_a_line_that_cannot_be_written_costs_no_other_its_place(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    with Path("/dev/full").open("w") as full, lines.open("w") as log:
        message_printer(full, log)("up")
        with contextlib.suppress(OSError):
            full.close()

    assert lines.read_text().endswith("Z INFO kappa: up\n")


def test_lines_of_the_supervisor_have_levels(tmp_path: Path) -> None:
    """A process that ends as it was asked to needs nobody; the level is in no other text."""
    with (tmp_path / "log").open("w") as log:
        say = message_printer(log)
        say(warning("the broker has died"))
        say(failure("the job stopped"))
        for code in (0, -signal.SIGTERM, -signal.SIGKILL, 3):
            say(ended_message("the job", code))

    lines = (tmp_path / "log").read_text().splitlines()
    levels = [level_of(line) for line in lines]
    assert levels == ["warning", "error", "", "", "warning", "warning"]
    assert lines[0].endswith(" WARN kappa: the broker has died")


def test_what_is_broken_ends_the_loop(tmp_path: Path) -> None:
    with pytest.raises(Broken):
        run_loop(tmp_path, Ticks(Broken("the journal has a gap")))


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("", None),
        ("2026-01-31T14:00:00 half a li", None),
        ("2026-01-31T14:00:00 the broker starts\n2026-01-31T14:00:01 the br", "the broker starts"),
        ("2026-01-31T14:00:00.123Z WARN kappa: the broker has died\n", "the broker has died"),
        ("2026-01-31T14:00:00 up\nfetching 40 jars of Kafka\n", "fetching 40 jars of Kafka"),
    ],
)
def test_starting_it_shows_its_last_line(tmp_path: Path, written: str, line: str | None) -> None:
    log = tmp_path / "supervisor.log"
    log.write_text(f"of an earlier one\n{written}")

    assert last_line(log, len("of an earlier one\n")) == line


def test_a_supervisor_whose_root_was_taken_over_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("kappa.replay.platform.supervisor._CLAIM_SECONDS", 0.0)

    def refuse() -> None:
        raise Superseded("another host has it")

    store = Store(tmp_path)
    monkeypatch.setattr(store.control, "ensure_mine", refuse)
    unused = SimpleNamespace()

    with pytest.raises(Superseded):
        _run_loop(
            *(store, unused, Ticks(), unused, unused, unused),
            *(unused, unused, print, SimpleNamespace(requested=False), {}),
        )


def test_lost_root_is_not_told_to_be_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that lost its root to another `kappa up --take-over` does not report "up"."""

    def lost(_control: object) -> None:
        raise Superseded("the root is claimed by host green")

    monkeypatch.setattr(DiskControl, "ensure_mine", lost)
    said: list[str] = []

    with pytest.raises(Superseded, match="green"):
        run_loop(tmp_path, Ticks(), said)

    assert said == []
    assert running_at(Store(tmp_path)) is None
