"""Lines of traces that are text, numbered, one in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mrc_testbed.experiments.traces.errors import TraceError

LINE_MAX = 4096
"""Bytes of a line."""
RANKS_MAX = 4096
NUMBER_MAX = 1 << 53
"""Largest accepted number: 104 days of nanoseconds, 8 PiB."""
QUOTED_MAX = 40


def numbered_lines(path: Path, kind: str, *, line_max: int = LINE_MAX) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file, without the byte order mark. Raises TraceError.

    `kind` says what the file should be ("a GOAL schedule").
    """
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(line_max + 1):
                number += 1
                if len(raw) > line_max:
                    raise TraceError(path, f"a line of more than {line_max} bytes: not {kind}", number)
                try:
                    yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    raise TraceError(path, f"not text: not {kind}", number) from None
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None


def quote(text: str) -> str:
    """Return a text as an error shows it, shortened."""
    return repr(text if len(text) <= QUOTED_MAX else text[:QUOTED_MAX] + "...")


def whole_number(path: Path, text: str, subject: str, line: int, low: int = 0, high: int = NUMBER_MAX) -> int:
    """Return a whole number in decimal digits. Raises TraceError, with the subject and the bounds."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(NUMBER_MAX)) else -1
    if not low <= number <= high:
        raise TraceError(path, f"{subject} {quote(text)}: {low} to {high}", line)
    return number
