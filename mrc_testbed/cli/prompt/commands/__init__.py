"""Commands of the CLI, by subject: each takes a CliSession and arguments and returns text.

    base.py       what a word is, arguments, completion
    links.py      link, links, power                           inject.py   rate, delay, loss, corrupt, ..., heal
    paths.py      evs, pingall, denylist, deny, allow          faults.py   faults, routes, check (check.py), notices
    queues.py     queues, counters                             tools.py    ping, bw, lat, stat, capture, trace, p4sh
    transfers.py  send, wait                                   notices.py  what is told above the prompt
    state.py      save, load                                   programs.py reload, entries
    devices.py    devices

Importing this package fills `WORDS`.
"""

from mrc_testbed.cli.prompt.commands import (  # noqa: F401 - order of `help`  # noqa: F401, I001
    devices,
    faults,
    inject,
    links,
    paths,
    programs,
    queues,
    state,
    tools,
    transfers,
)
from mrc_testbed.cli.prompt.commands.base import WORDS, Answer, CliCommand, CliSession, CommandError
from mrc_testbed.cli.prompt.commands.transfers import Transfers
from mrc_testbed.console.terminal import Style

__all__ = ["WORDS", "Answer", "CliCommand", "CliSession", "CommandError", "Style", "Transfers"]
