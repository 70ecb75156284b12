"""The MRC words of the CLI, by subject; each takes a Session and arguments and gives text, so tests need no terminal.

    base.py       what a word is, arguments, completion        table.py    aligned, coloured on a terminal
    links.py      link, links, power                           inject.py   rate, delay, loss, corrupt, ..., heal
    paths.py      evs, pingall, denylist, deny, allow          faults.py   faults, routes, check (check.py)
    queues.py     queues, counters                             tools.py    ping, bw, lat, stat, capture, trace, p4sh
    transfers.py  send, wait

Importing this package fills `WORDS`.
"""

from topologies.words import links, paths, faults, queues, inject, transfers, tools  # noqa: F401, I001 - order of `help`
from topologies.words.base import WORDS, Answer, Session, UsageError, Word
from topologies.words.table import Style
from topologies.words.transfers import Transfers

__all__ = ["WORDS", "Answer", "Session", "Style", "Transfers", "UsageError", "Word"]
