"""The paths of this source tree."""

from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]
SUPPORT = Path(__file__).parent
