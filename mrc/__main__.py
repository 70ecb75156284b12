"""`mrc` and `python -m mrc`."""

from __future__ import annotations

from ipc.command_line import begin
from ipc.errors import INTERRUPTION


def main() -> None:
    """Entry point of the console script."""
    begin("mrc.cli.app", INTERRUPTION)


if __name__ == "__main__":
    main()
