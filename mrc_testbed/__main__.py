"""`mrc` and `python -m mrc_testbed`."""

from __future__ import annotations

from mrc_testbed.console.command_line import begin
from mrc_testbed.errors import INTERRUPTION


def main() -> None:
    """Entry point of the console script."""
    begin("mrc_testbed.cli.app", INTERRUPTION)


if __name__ == "__main__":
    main()
