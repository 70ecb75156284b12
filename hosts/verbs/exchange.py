"""Out-of-band exchange of two ends (§10.2), and the state transitions that follow from it.

    mine = local_info(qp, mr)                   # a record; to_json() for a socket, a file, a key-value store
    theirs = QpInfo.from_json(received)
    bring_up(qp, mine, theirs)                  # RESET -> INIT -> RTR -> RTS

`connect_over(socket, qp, mr)` does all of it over a connected stream socket, `establish(qp, path, listen=...)` finds
the other end first, `connect_pair(a, b)` is both ends in one process.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mrc_testbed.hosts.engine.config import PATH_MTUS
from mrc_testbed.hosts.engine.errors import PeerError
from mrc_testbed.hosts.verbs.attributes import AddressVector, MrcQpAttr, QpAttr
from mrc_testbed.hosts.verbs.enums import UNIT_MPR, AccessFlags, MrcQpCap, QpState
from mrc_testbed.hosts.verbs.memory import MemoryRegion
from mrc_testbed.hosts.verbs.qp import QueuePair

MAX_INFO_BYTES = 1 << 16
DIAL_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True)
class QpInfo:
    """One end of a connection. Goes through JSON as it is."""

    qpn: int
    psn: int
    """First PSN this end sends (its sq_psn, the other's rq_psn)."""
    gid: str
    """Address of its first port; the others follow from it."""
    path_mtu: int
    """Largest this end takes, bytes; the smaller of both is used."""
    mpr: int
    """Window as responder, units of 128 packets."""
    max_wimm: int
    """WriteIMM messages it takes in flight."""
    dynamic_mpr: bool = False
    trim_nack: bool = True
    svc_time: bool = False
    addr: int = 0
    """Region offered to the other end: virtual address, R_Key, bytes. Length 0: none."""
    rkey: int = 0
    length: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> QpInfo:
        """Inverse of to_json. Raises PeerError for what is missing, unknown or out of range."""
        known_keys = {f.name for f in fields(cls)}
        required_keys = {"qpn", "psn", "gid", "path_mtu", "mpr", "max_wimm"}
        if not isinstance(data, dict) or not set(data) <= known_keys or not required_keys <= set(data):
            raise PeerError(f"QP information has the keys {', '.join(sorted(known_keys))}; got {str(data)[:200]}")
        for key, value in data.items():
            low, high = _RANGES.get(key, (0, 0))
            if key == "gid":
                good = isinstance(value, str) and 0 < len(value) < 100 and value.isprintable()
            elif key in ("dynamic_mpr", "trim_nack", "svc_time"):
                good = isinstance(value, bool)
            elif key == "path_mtu":
                good = value in PATH_MTUS
            else:
                good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
            if not good:
                raise PeerError(f"QP information: {key} = {str(value)[:100]!r} is out of range")
        return cls(**data)


_RANGES = {
    "qpn": (3, (1 << 24) - 1),
    "psn": (0, (1 << 24) - 1),
    "mpr": (1, 255),
    "max_wimm": (0, 32767),
    "addr": (0, (1 << 64) - 1),
    "rkey": (0, (1 << 32) - 1),
    "length": (0, (1 << 64) - 1),
}


def local_info(qp: QueuePair, mr: MemoryRegion | None = None) -> QpInfo:
    """Return the record to send to the peer about a QP and, if given, the region it may write to.

    Values are those of the configuration.
    """
    context = qp.context
    config = context.config
    region = (0, 0, 0) if mr is None else (mr.addr, mr.rkey, mr.length)
    return QpInfo(
        qp.qp_num,
        qp.engine.first_psn,
        context.driver.gids()[0],
        config.qp.pmtu_bytes,
        config.qp.mpr_packets // UNIT_MPR,
        config.qp.max_wimm,
        config.qp.dynamic_mpr,
        config.acks.trim_nack,
        False,
        *region,
    )


def bring_up(
    qp: QueuePair,
    local_end: QpInfo,
    peer_end: QpInfo,
    *,
    ev_profile_id: int | None = None,
    cc_profile_id: int | None = None,
    final_state: QpState = QpState.RTS,
) -> None:
    """Move a QP in RESET up to `to` with all attributes that follow from both ends. Raises VerbsError."""
    qp.modify(
        QpAttr(qp_state=QpState.INIT, pkey_index=0, qp_access_flags=AccessFlags.IBV_ACCESS_REMOTE_WRITE),
        mrc_attr=MrcQpAttr(ev_profile_id=ev_profile_id, cc_profile_id=cc_profile_id),
    )
    if final_state is QpState.INIT:
        return
    # No responder of ours reports a service time (§12 row 34).
    cap = MrcQpCap.MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED
    if local_end.dynamic_mpr and peer_end.dynamic_mpr:
        cap |= MrcQpCap.MRC_QP_CAP_DYNAMIC_MPR
    if not peer_end.trim_nack:
        cap |= MrcQpCap.MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED
    qp.modify(
        QpAttr(
            qp_state=QpState.RTR,
            ah_attr=AddressVector(peer_end.gid),
            path_mtu=min(local_end.path_mtu, peer_end.path_mtu),
            dest_qp_num=peer_end.qpn,
            rq_psn=peer_end.psn,
        ),
        mrc_attr=MrcQpAttr(
            max_wimm_dest=local_end.max_wimm,
            mpr_dest=local_end.mpr,
            cap=cap,
        ),
    )
    if final_state is QpState.RTR:
        return
    _to_rts(qp, local_end, peer_end)


def connect_pair(
    a: QueuePair, b: QueuePair, mr_a: MemoryRegion | None = None, mr_b: MemoryRegion | None = None, **profiles: Any
) -> tuple[QpInfo, QpInfo]:
    """Connect two QPs of one process, and return the record that each end sent.

    `profiles` as for bring_up, for both.
    """
    info_a, info_b = local_info(a, mr_a), local_info(b, mr_b)
    bring_up(a, info_a, info_b, final_state=QpState.RTR, **profiles)
    bring_up(b, info_b, info_a, **profiles)
    _to_rts(a, info_a, info_b)
    return info_a, info_b


def _to_rts(qp: QueuePair, local_end: QpInfo, peer_end: QpInfo) -> None:
    config = qp.context.config
    mrc = MrcQpAttr(max_wimm=peer_end.max_wimm, mpr=peer_end.mpr, timeout=config.loss.timeout)
    mrc.linear_cnt, mrc.exp_cnt = config.loss.linear_cnt, config.loss.exp_cnt
    qp.modify(QpAttr(qp_state=QpState.RTS, sq_psn=local_end.psn), mrc_attr=mrc)


def send_info(sock: socket.socket, info: Any) -> None:
    """Send one JSON line: a record with to_json(), or plain data."""
    data = info.to_json() if hasattr(info, "to_json") else info
    sock.sendall(json.dumps(data).encode() + b"\n")


def receive_info(sock: socket.socket) -> Any:
    """Read one JSON line from a stream socket and return its data.

    Raises PeerError when the other end sends no such line.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = sock.recv(1)  # so that nothing behind the line is taken
        if not byte:
            raise PeerError("the peer closed the connection before it sent its QP")
        line += byte
        if len(line) > MAX_INFO_BYTES:
            raise PeerError(f"the other end sent more than {MAX_INFO_BYTES} bytes without a line end")
    try:
        return json.loads(line)
    except ValueError as error:
        raise PeerError(f"the other end sent no JSON: {error}") from None


def swap(sock: socket.socket, local_end: QpInfo) -> QpInfo:
    """Send our record and return the peer's, over a connected stream socket."""
    send_info(sock, local_end)
    return QpInfo.from_json(receive_info(sock))


def connect_over(sock: socket.socket, qp: QueuePair, mr: MemoryRegion | None = None, **profiles: Any) -> QpInfo:
    """Exchange, bring the QP up, and wait until the other end has done so too; returns what it told.

    Without the last step the first packets may find nobody, and the requestor would take their paths for broken.
    """
    local_end = local_info(qp, mr)
    peer_end = swap(sock, local_end)
    bring_up(qp, local_end, peer_end, **profiles)
    send_info(sock, {"ready": True})
    if receive_info(sock) != {"ready": True}:
        raise PeerError("the peer did not report that its QP is ready")
    return peer_end


def establish(
    qp: QueuePair,
    path: Path | str,
    *,
    listen: bool,
    mr: MemoryRegion | None = None,
    timeout_s: float = 30.0,
    **profiles: Any,
) -> QpInfo:
    """Call `connect_over` over a Unix socket at `path`; raises PeerError.

    One end listens, the other dials, in any order.

    File names are seen from every network namespace of the machine, so this stands for the management network.
    """
    with _meeting(Path(path), listen, timeout_s) as sock:
        return connect_over(sock, qp, mr, **profiles)


def meet(path: Path | str, local_end: QpInfo, *, listen: bool, timeout_s: float = 30.0) -> QpInfo:
    """Call `swap` over a Unix socket at `path`, as `establish` does.

    For programs that bring their QPs up by themselves.
    """
    with _meeting(Path(path), listen, timeout_s) as sock:
        return swap(sock, local_end)


@contextmanager
def _meeting(path: Path, listen: bool, timeout_s: float) -> Iterator[socket.socket]:
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        sock.settimeout(timeout_s)
        try:
            if listen:
                path.unlink(missing_ok=True)
                sock.bind(str(path))
                stack.callback(path.unlink, missing_ok=True)
                sock.listen(1)
                sock = stack.enter_context(sock.accept()[0])
                sock.settimeout(timeout_s)
            else:
                _dial(sock, path, timeout_s)
            yield sock
        except OSError as error:
            reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or error
            raise PeerError(f"{path}: {reason} (waited {timeout_s:g} s at most)") from None


def _dial(sock: socket.socket, path: Path, timeout_s: float) -> None:
    """Connect, waiting for the listener to appear."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return sock.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() >= deadline:
                raise
            time.sleep(DIAL_AGAIN_S)
