"""Places in the checkout that tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
P4SRC = ROOT / "p4src"
SCENARIOS = ROOT / "scenarios"
