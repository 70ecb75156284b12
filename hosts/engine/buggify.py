"""Points of the engine at which a simulation has something rare and legal happen: an answer lost, a SACK late.

    if BUGGIFY.on and BUGGIFY.happens("probe unanswered"):
        return

The engine has no source of randomness for this: simulation testing puts in a decision, drawn from the seed of the
schedule, and takes it out again (`deciding`). Nobody else does, so that a point costs the look at one attribute
(docs/simulation-testing.md: how often). After FoundationDB's macro of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

POINTS: Final = (
    "bursts of one", "window seems full", "probe unanswered", "Transport ACK lost", "NACK lost", "SACK late",
    "port update unanswered",
)  # fmt: skip


def _never(_point: str) -> bool:
    return False


class Buggify:
    """The points of a process. `happens(point)` decides; ask it where `on` is true."""

    def __init__(self) -> None:
        self.on = False
        self.happens: Callable[[str], bool] = _never


BUGGIFY: Final = Buggify()


@contextmanager
def deciding(decide: Callable[[str], bool]) -> Iterator[None]:
    """Have `decide(point)` say what happens, for as long as the context lasts."""
    BUGGIFY.on, BUGGIFY.happens = True, decide
    try:
        yield
    finally:
        BUGGIFY.on, BUGGIFY.happens = False, _never
