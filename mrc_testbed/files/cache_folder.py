"""The folder of what is made once and used again: builds, compiled modules, durations."""

from __future__ import annotations

import os
from pathlib import Path

_NO_HOME = Path("/nonexistent")
"""Home of a user who has none, by Debian's word for it: what would be kept there is not, and its error names it."""


def cache_dir() -> Path:
    """$MRC_CACHE_DIR or ~/.cache/mrc-testbed, whether it is there or not."""
    home = Path(os.path.expanduser("~"))  # as it stands where neither HOME nor the list of users knows it
    return Path(os.environ.get("MRC_CACHE_DIR") or (home if home.is_absolute() else _NO_HOME) / ".cache/mrc-testbed")
