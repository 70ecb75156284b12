"""Times at which something is due, in seconds of the engine's clock."""

from __future__ import annotations

from math import inf
from typing import Final

NEVER: Final = inf
"""Time of what is not due at all: a plain float, since deadlines are compared after every packet."""
