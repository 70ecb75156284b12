"""QP hints: expected traffic of a group of QPs, from which a NIC could size its tables (§10.1)."""

from __future__ import annotations

import errno
from dataclasses import dataclass, fields, replace
from typing import Any

from mrc_testbed.hosts.verbs.checks import flags, number, record
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.enums import MrcQpHintAttrMask
from mrc_testbed.hosts.verbs.errors import VerbsError

MAX_HINTS = 1 << 16
MAX_VENDOR_CFG = 128
"""Bytes of a vendor's own data, in hints and QPs."""


@dataclass
class QpHintAttr:
    """Attributes of a hint; None = not given (modify) or not asked for (query)."""

    num_qps_per_peer: int | None = None
    """QPs with this hint that send to the same peer at the same time."""
    num_send_peers: int | None = None
    """Peers that QPs with this hint send to at the same time."""
    num_remote_recv_peers: int | None = None
    """Remote QPs that send to the same peer at the same time: its incast."""
    vendor_cfg: bytes | None = None


HINT_FIELDS: dict[str, MrcQpHintAttrMask] = {
    "num_qps_per_peer": MrcQpHintAttrMask.MRC_QP_HINT_NUM_QPS_PER_PEER,
    "num_send_peers": MrcQpHintAttrMask.MRC_QP_HINT_NUM_SEND_PEERS,
    "num_remote_recv_peers": MrcQpHintAttrMask.MRC_QP_HINT_NUM_REMOTE_RECV_PEERS,
    "vendor_cfg": MrcQpHintAttrMask.MRC_QP_HINT_VENDOR_CFG,
}
"""Field of QpHintAttr -> bit of the mask that says it is given."""


class QpHint:
    """A hint, made by `Device.create_qp_hint`; QPs take it by MRC_QP_HINT.

    Its attributes are kept and given back; this device needs none of them.
    """

    def __init__(self, context: DeviceContext, attr: QpHintAttr) -> None:
        self._context = context
        self._attr = QpHintAttr(1, 1, 1, b"")
        self.users = 0
        """QPs that have it."""
        self.destroyed = False
        self.modify(attr)
        with context.lock:
            context.require_open()
            if len(context.hints) >= MAX_HINTS:
                raise VerbsError(f"create_qp_hint: {MAX_HINTS} hints exist, the limit", errno.ENOMEM)
            context.hints.add(self)

    def belongs_to(self, context: DeviceContext) -> bool:
        """Whether a QP of that context may use it."""
        return self._context is context and not self.destroyed

    def query(self, mask: MrcQpHintAttrMask | None = None) -> QpHintAttr:
        """Return the attributes of the mask, or all."""
        with self._context.lock:
            self._require_alive()
            return _select_attributes(self._attr, mask)

    def modify(self, attr: QpHintAttr, mask: MrcQpHintAttrMask | None = None) -> None:
        """Change the attributes of the mask, or those that are not None; also while QPs use it."""
        changes = _select_attributes(record("qp_hint", attr, QpHintAttr), mask)
        values = {f.name: value for f in fields(changes) if (value := getattr(changes, f.name)) is not None}
        for name, value in values.items():
            if name == "vendor_cfg":
                check_vendor_cfg("qp_hint", value)
            else:
                number(f"qp_hint: {name}", value, 0, (1 << 31) - 1)
        with self._context.lock:
            self._require_alive()
            self._attr = replace(self._attr, **values)

    def destroy(self) -> None:
        """Destroy the hint; raises VerbsError (EBUSY) while a QP has it. Idempotent."""
        with self._context.lock:
            if self.users:
                raise VerbsError(f"{self.users} QPs have this hint: reset or destroy these first", errno.EBUSY)
            self.destroyed = True
            self._context.hints.discard(self)

    def _require_alive(self) -> None:
        if self.destroyed:
            raise VerbsError("the hint was destroyed", errno.EINVAL)


def check_vendor_cfg(subject: str, value: Any) -> None:
    """Check a vendor's own data. Raises VerbsError."""
    if len(record(f"{subject}: vendor_cfg", value, bytes)) > MAX_VENDOR_CFG:
        raise VerbsError(f"{subject}: vendor_cfg has {len(value)} bytes: at most {MAX_VENDOR_CFG}")


def _select_attributes(attr: QpHintAttr, mask: MrcQpHintAttrMask | None) -> QpHintAttr:
    if mask is None:
        return replace(attr)
    bits = flags("qp_hint: mask", mask, MrcQpHintAttrMask)
    return QpHintAttr(**{name: getattr(attr, name) for name, bit in HINT_FIELDS.items() if bits & bit})
