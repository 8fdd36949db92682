"""Checks of the units in deploy/systemd against systemd, and against Kappa's own options."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parent.parent
UNITS = sorted((TREE / "deploy" / "systemd").glob("*.service"))


def verified(text: str, copy: Path) -> str:
    """Returns systemd's complaints about a unit, whose program need not exist on this machine."""
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text), encoding="utf-8")
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    # Units of the machine itself are none of ours.
    return "".join(line for line in found.stderr.splitlines() if copy.name in line)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_each_unit_and_no_word_that_it_does_not_know(unit, tmp_path):
    text = unit.read_text(encoding="utf-8")

    assert verified(text, tmp_path / unit.name) == ""
    assert "Unknown key" in verified(text.replace("Restart=", "Restrat="), tmp_path / unit.name)


def test_units_call_kappa_with_what_it_knows():
    calls = {
        unit.name: re.findall(r"(?m)^ExecStart=\S+/kappa (.*)$", unit.read_text(encoding="utf-8"))
        for unit in UNITS
    }

    assert calls == {
        "kappa.service": ["up"],
        "kappa-serve.service": ["serve --listen 127.0.0.1:8718"],
    }


def test_units_read_the_file_that_the_page_has_secrets_written_to():
    page = (TREE / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")

    for unit in UNITS:
        (file,) = re.findall(r"(?m)^EnvironmentFile=-(.+)$", unit.read_text(encoding="utf-8"))
        assert f"install -m 0640 -g kappa /dev/null {file}" in page
