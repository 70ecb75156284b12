"""Errors of the front door that are the user's: shown as one line, never as a traceback."""

from __future__ import annotations

import errno

EXIT_UNWRITTEN, EXIT_NOT_ARRIVED, EXIT_INTERRUPTED = 3, 4, 130
EXIT_CODES = {
    0: "done, and every rule held",
    1: "a rule did not hold, or an error that the last line names with its cure",
    2: "wrong usage, or a file that is not a scenario",
    EXIT_UNWRITTEN: "the disk did not take the results; the verdict is printed, and what is whole stays",
    EXIT_NOT_ARRIVED: "`mrc trace`: the packet ended on its way",
    EXIT_INTERRUPTED: "Ctrl-C; 143 and 129 after SIGTERM and SIGHUP",
}
"""Meaning of each exit code of `mrc`, whatever the command.

`mrc --help` and docs/commands.md take the texts from here.
"""
INTERRUPTION = "mrc: interrupted; no process or interface of this run is left"
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
"""Errnos of a disk that takes no data."""

BARRED_PATH_ERRNOS = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""Errors of a path that cannot be used as it is: the user's, where no command has a word of its own."""


EXTRAS = {
    "aiohttp": "live", "mininet": "live", "prometheus_client": "live", "pyroute2": "live", "scapy": "live",
    "thriftpy2": "live", "matplotlib": "plots", "pandas": "data", "pyarrow": "data", "submitit": "slurm", "ray": "ray",
}  # fmt: skip
"""Module that a use needs -> extra of pyproject.toml that installs it."""


def package_cure(module: str) -> str:
    """Return the command that installs a module which is missing: with its extra, or with the core."""
    extra = EXTRAS.get(module)
    return f"pip install 'mrc-testbed[{extra}]'" if extra else "pip install mrc-testbed"


class UsageError(Exception):
    """A mistake in the user's request; the message names the cure."""


class FullDiskError(UsageError):
    """Disk that did not take what a command writes.

    The message names the file, the cure, and which part of the output is whole.
    """
