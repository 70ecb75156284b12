"""Words of the prompt in a shell: `mrc link p1-t0-0 p1-t1-1 down`, `mrc send h0 h2 64M`.

The front process of the running fabric does them (cli/prompt/word_server.py), as its own prompt would, so `heal` undoes
them wherever it is given. This table says which words exist outside; those that only read are in cli/show.py.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from mrc_testbed.cli.options import FabricName, Json, asked_folder
from mrc_testbed.console.terminal import Style, width_of

PANEL = "Words of the prompt"
"""Heading of these commands in `mrc --help`."""
SHELL_WORDS = {
    "link": ("Cut a cable or restore it.", "link p1-t0-0 p1-t1-1 down"),
    "power": ("Switch switches and hosts off, where they lose their state, or on.", "power h0 off"),
    "rate": ("Limit a link, in bits/s; `off` gives it the plan's rate again.", "rate p0-t0-0 p0-t1-1 5M"),
    "delay": ("Set the one-way delay of a link; `off` gives it the plan's again.", "delay p0-t0-0 p0-t1-1 5ms"),
    "loss": ("Lose packets of a link by chance or by a pattern.", "loss p0-t0-0 p0-t1-1 1%"),
    "corrupt": ("Flip a bit of packets of a link.", "corrupt p0-t0-0 p0-t1-1 0.1%"),
    "oneway": ("Lose what one end of a link sends.", "oneway p0-t0-0 p0-t1-1"),
    "blackhole": ("Make a switch lose every packet while its ports stay up.", "blackhole p1-t1-0"),
    "flap": ("Cut a link and restore it, again and again.", "flap p0-t0-0 p0-t1-1 2s x5"),
    "reboot": ("Take the power of a switch or a host and give it back.", "reboot p1-t1-0 2s"),
    "deny": ("Take EVs out of use on the hosts.", "deny p1-t1-0"),
    "allow": ("Take entries off the denylist.", "allow p1-t1-0"),
    "denylist": ("Show the denylist of the hosts.", "denylist"),
    "injected": ("Show the faults that were injected and hold now.", "injected"),
    "heal": ("Undo every injected fault.", "heal"),
    "save": ("Write the faults that hold now to a file, and with --tables the switches' entries.", "save state.yaml"),
    "load": ("Apply a file of `save`, or write a file of table entries to a switch.", "load state.yaml"),
    "reload": ("Compile P4 programs again and swap them under traffic.", "reload my.p4 p0-t1-0"),
    "entries": ("List the table entries of a switch.", "entries p0-t1-0"),
    "routes": ("Read every switch table again and compare it.", "routes"),
    "send": ("Send random bytes or a file from host to host, in the background.", "send h0 h2 64M"),
    "wait": ("Wait until every transfer begun with `send` has ended.", "wait"),
}
"""Word -> what it does, and an example."""


def give_word(name: str, args: list[str], fabric: str | None, as_json: bool) -> int:
    """Give a word to the front process of the fabric; the exit code. Raises FabricError, JsonlError."""
    from mrc_testbed.cli.prompt.word_client import WordClient

    def print_failure(text: str) -> None:
        print(f"mrc: error: {text}", file=sys.stderr, flush=True)

    def print_text(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    client = WordClient(asked_folder(fabric))
    columns, colour = width_of(sys.stdout), Style.for_stream(sys.stdout).colour
    failures = client.run_line(
        shlex.join([name, *args]), print_text, print_failure, columns=columns, colour=colour, as_json=as_json
    )
    return 1 if failures else 0


def _command(name: str) -> Callable[..., None]:
    def run(
        args: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="As at the prompt.")] = None,
        fabric: FabricName = None,
        as_json: Json = False,
    ) -> None:
        raise typer.Exit(give_word(name, args or [], fabric, as_json))

    run.__doc__ = SHELL_WORDS[name][0]
    return run


def add_to(app: typer.Typer) -> None:
    """Give `mrc` these commands."""
    for name, (_, example) in SHELL_WORDS.items():
        app.command(
            name,
            epilog=f"Example: `mrc {example}`, while `mrc up` runs; `help {name}` at its prompt shows more",
            rich_help_panel=PANEL,
            context_settings={"ignore_unknown_options": True},
        )(_command(name))
