"""The one exception of the verbs: bad use, told with what would have worked."""

from __future__ import annotations

import errno as _errno

from mrc_testbed.hosts.engine.errors import LocalError


class VerbsError(LocalError):
    """A call was refused and changed nothing; the message names what would have worked.

    `errno` is what the C call would set: EINVAL (a value or a state), ENOENT (no such object or EV), EBUSY (in use),
    ENOMEM (a queue is full), E2BIG (more than the device can), EPERM.

    >>> str(VerbsError("modify_qp INIT->RTS: not a transition (from INIT: RTR, ERROR, RESET)"))
    'modify_qp INIT->RTS: not a transition (from INIT: RTR, ERROR, RESET)'
    >>> VerbsError("the send queue is full", _errno.ENOMEM).errno == _errno.ENOMEM
    True
    """

    def __init__(self, message: str, errno: int = _errno.EINVAL, *, done_count: int = 0) -> None:
        super().__init__(message)
        self.errno = errno
        self.done_count = done_count
        """Number of requests carried out before the refused one of a list."""
