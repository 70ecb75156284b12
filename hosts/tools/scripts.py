"""Entry points of the tools' console scripts: they import the tool where Ctrl-C is caught."""

from __future__ import annotations

from mrc_testbed.console.command_line import begin


def ping() -> None:
    """`mrc-ping`."""
    begin("mrc_testbed.hosts.tools.ping", "mrc-ping: interrupted")


def stat() -> None:
    """`mrc-stat`."""
    begin("mrc_testbed.hosts.tools.stat", "mrc-stat: interrupted")


def write_bw() -> None:
    """`mrc-write-bw`."""
    begin("mrc_testbed.hosts.tools.write_bw", "mrc-write-bw: interrupted")


def write_lat() -> None:
    """`mrc-write-lat`."""
    begin("mrc_testbed.hosts.tools.write_lat", "mrc-write-lat: interrupted")
