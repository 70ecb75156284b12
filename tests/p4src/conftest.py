"""Lets the tests of this folder import its helper module (pytest's importlib mode puts no folder on sys.path)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
