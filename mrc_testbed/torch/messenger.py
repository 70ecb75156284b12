"""Messages between the ranks of a job: the Python face of src/messenger.c.

A request that waits holds no lock of Python's, so a training process goes on computing.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE, compile_flags
from mrc_testbed.switch.system.gcc import build_shared

ANY_RANK = -1
_SOURCE = Path(__file__).with_name("src") / "messenger.c"


class MessengerError(RuntimeError):
    """A message that cannot be sent or received; the text names rank and cause."""


@cache
def _library() -> ctypes.CDLL:
    """Return the compiled messenger. Raises BuildError without a compiler."""
    flags = compile_flags()
    library = ctypes.CDLL(
        str(build_shared([_SOURCE], [], (*flags, "-pthread", "-fno-strict-aliasing"), "messenger")), use_errno=True
    )
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    for name, result, arguments in (
        ("open", pointer, (number, number, ctypes.POINTER(ctypes.c_char_p))),
        ("hello_bytes", number, ()),
        ("hello", number, (pointer, number, pointer)),
        ("connect", number, (pointer, number, ctypes.c_char_p)),
        ("start", number, (pointer,)),
        ("send", pointer, (pointer, number, ctypes.c_uint64, pointer, size)),
        ("receive", pointer, (pointer, number, ctypes.c_uint64, pointer, size)),
        ("wait", number, (pointer, pointer, ctypes.c_double, ctypes.POINTER(number))),
        ("is_done", ctypes.c_bool, (pointer, pointer)),
        ("text", ctypes.c_char_p, (pointer,)),
        ("abort", None, (pointer,)),
        ("close", None, (pointer,)),
    ):
        function = getattr(library, f"messenger_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Messenger:
    """Connections of one rank to all others of its group.

    `swap(peer, ours)`: tell a peer some bytes, and return its own, by any way but the fabric. Raises MessengerError.
    """

    def __init__(self, ranks: int, rank: int, swap: Callable[[int, bytes], bytes]) -> None:
        if SOCKET_VARIABLE not in os.environ:
            raise MessengerError(
                "no host of a fabric runs this process. Cure: start it by `mrc exec HOST -- ...` or `mrc train`"
            )
        self.ranks, self.rank = ranks, rank
        self._library = _library()
        call = ctypes.c_char_p()
        self._messenger = self._library.messenger_open(ranks, rank, ctypes.byref(call))
        if not self._messenger:
            raise MessengerError(f"{(call.value or b'').decode()}: {os.strerror(ctypes.get_errno()) or 'no device'}")
        peers = [peer for peer in range(ranks) if peer != rank]
        hellos = {peer: self._hello(peer) for peer in peers}
        for peer in peers:
            self._check(self._library.messenger_connect(self._messenger, peer, swap(peer, hellos[peer])), peer)
        for peer in peers:
            swap(peer, b"connected")  # nobody sends before both ends are connected
        self._check(self._library.messenger_start(self._messenger), rank)

    def _hello(self, peer: int) -> bytes:
        hello = ctypes.create_string_buffer(self._library.messenger_hello_bytes())
        self._check(self._library.messenger_hello(self._messenger, peer, hello), peer)
        return hello.raw

    def _check(self, error: int, peer: int) -> None:
        if error:
            raise MessengerError(f"rank {self.rank}, connection to rank {peer}: {os.strerror(error)}")

    def send(self, peer: int, tag: int, address: int, length: int) -> MessageRequest:
        """Send `length` bytes at an address of this process; they stay unchanged until the request is done."""
        return self._request("send to", peer, self._library.messenger_send, tag, address, length)

    def receive(self, peer: int, tag: int, address: int, length: int) -> MessageRequest:
        """Receive the next message of a tag from a rank, or from ANY_RANK, to an address of this process."""
        return self._request("receive from", peer, self._library.messenger_receive, tag, address, length)

    def _request(
        self, action: str, peer: int, function: Callable[..., int | None], tag: int, address: int, length: int
    ) -> MessageRequest:
        request = function(self._messenger, peer, tag, address, length)
        if not request:
            raise MessengerError(f"{action} rank {peer}: no memory")
        return MessageRequest(self, f"{action} {'any rank' if peer == ANY_RANK else f'rank {peer}'}", request, length)

    def finish(self, request: int, timeout_s: float) -> tuple[int, int]:
        """Wait for a request; return its errno, and the rank that a message came from."""
        source = ctypes.c_int(ANY_RANK)
        error = self._library.messenger_wait(self._messenger, request, timeout_s, ctypes.byref(source))
        return error, source.value

    def is_done(self, request: int) -> bool:
        """Whether waiting for a request would return at once."""
        return bool(self._library.messenger_is_done(self._messenger, request))

    @property
    def lost_text(self) -> str:
        """Words about the last rank that was lost."""
        return bytes(self._library.messenger_text(self._messenger) or b"").decode()

    def abort(self) -> None:
        """Give up all connections: what waits ends with an error."""
        if self._messenger:
            self._library.messenger_abort(self._messenger)

    def close(self) -> None:
        """Wait for the last writes to arrive, and free QPs and memory. Idempotent."""
        if self._messenger:
            self._library.messenger_close(self._messenger)
            self._messenger = None


class MessageRequest:
    """A message under way; it must be waited for, once."""

    def __init__(self, messenger: Messenger, action: str, number: int, length: int) -> None:
        self._messenger, self._action, self._number, self._length = messenger, action, number, length

    def wait(self, timeout_s: float) -> int:
        """Wait; return the rank that the message came from. Raises MessengerError."""
        error, source = self._messenger.finish(self._number, timeout_s)
        if error:
            raise MessengerError(self._failure(error, timeout_s))
        return source

    def abandon(self) -> None:
        """Give the request up; its bytes are not touched any more."""
        self._messenger.finish(self._number, 0.0)

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._messenger.is_done(self._number)

    def _failure(self, error: int, timeout_s: float) -> str:
        if error == errno.ETIMEDOUT:
            return f"{self._action}: not done within the timeout of {timeout_s:g} s"
        if error == errno.EMSGSIZE:
            return f"{self._action}: the message has not the {self._length} bytes of the tensor"
        lost_text = self._messenger.lost_text if error == errno.ECONNRESET else ""
        return f"{self._action}: {lost_text or os.strerror(error)}"
