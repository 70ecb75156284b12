"""The error of traces."""

from __future__ import annotations

from pathlib import Path

from mrc_testbed.errors import UsageError


class TraceError(UsageError):
    """A trace cannot be read or run; the message is one line: file, place, cause, and what would do."""

    def __init__(self, path: Path, text: str, line: int | None = None) -> None:
        # Names in a file may have line ends.
        one_line = " ".join(text.splitlines())
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {one_line}")
