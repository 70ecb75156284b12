"""Entry points of the tools' console scripts: they import the tool where Ctrl-C is caught."""

from __future__ import annotations

from ipc.command_line import begin


def ping() -> None:
    """`mrc-ping`."""
    begin("hosts.tools.ping", "mrc-ping: interrupted")


def stat() -> None:
    """`mrc-stat`."""
    begin("hosts.tools.stat", "mrc-stat: interrupted")


def write_bw() -> None:
    """`mrc-write-bw`."""
    begin("hosts.tools.write_bw", "mrc-write-bw: interrupted")


def write_lat() -> None:
    """`mrc-write-lat`."""
    begin("hosts.tools.write_lat", "mrc-write-lat: interrupted")
