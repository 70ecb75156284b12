"""The hand-written program of mini_program.c for `Device.load`, with a P4Info as a compiler writes it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

from finsy.proto import p4i

from mrc_testbed.switch.device.native import RUNTIME_DIR
from mrc_testbed.switch.system.gcc import build_shared

FORWARD, PUSH, POP, CUT, COPY_WIDE, DROP = range(0x01000001, 0x01000007)
BY_MAC, BY_ADDR, BY_BOTH, BY_ACL, BY_HASH = range(0x02000001, 0x02000006)
SPRAY, BY_PORT, SEEN_REGISTER = 0x11000001, 0x12000001, 0x16000001

_PARAMS = {"forward": [("port", 9)], "push": [("port", 9), ("tag", 16)], "pop": [("port", 9)]}
_PARAMS |= {"cut": [("port", 9), ("bytes", 16)], "copy_wide": [("value", 72)], "drop": []}
_KEYS = {"by_mac": [("dst", 48, 2)], "by_addr": [("a", 32, 3)], "by_both": [("c", 8, 2), ("a", 32, 3)]}
_KEYS |= {"by_acl": [("b", 16, 4), ("c", 8, 5), ("op", 8, 6)], "by_hash": [("c", 8, 2)]}


@lru_cache(maxsize=1)
def mini() -> SimpleNamespace:
    """Return the program as an object with `name`, `library` and `p4info`."""
    folder = Path(__file__).parent
    library = build_shared([folder / "mini_program.c"], [RUNTIME_DIR], tag="mini")
    return SimpleNamespace(name="mini", library=library, p4info=_p4info())


def _p4info() -> p4i.P4Info:
    info = p4i.P4Info()
    for number, (name, params) in enumerate(_PARAMS.items()):
        action = info.actions.add()
        action.preamble.id, action.preamble.name, action.preamble.alias = FORWARD + number, f"mini.{name}", name
        for id_, (param, bits) in enumerate(params, 1):
            action.params.add(id=id_, name=param, bitwidth=bits)
    for number, (name, fields) in enumerate(_KEYS.items()):
        table = info.tables.add(size=1024)
        table.preamble.id, table.preamble.name, table.preamble.alias = BY_MAC + number, f"mini.{name}", name
        for id_, (field, bits, match) in enumerate(fields, 1):
            table.match_fields.add(id=id_, name=field, bitwidth=bits, match_type=match)
        for action_id in range(FORWARD, DROP + 1):
            scope = 2 if action_id == DROP and name != "by_mac" else 0
            table.action_refs.add(id=action_id, scope=scope)
    info.tables[0].idle_timeout_behavior = p4i.Table.NOTIFY_CONTROL
    info.tables[4].implementation_id = SPRAY
    info.tables[1].const_default_action_id = FORWARD
    profile = info.action_profiles.add(with_selector=True, size=8, max_group_size=16, table_ids=[BY_HASH])
    counter = info.counters.add(size=16)
    counter.preamble.id, counter.preamble.name, counter.preamble.alias = BY_PORT, "mini.by_port", "by_port"
    register = info.registers.add(size=4)
    register.preamble.id, register.preamble.name, register.preamble.alias = SEEN_REGISTER, "mini.seen", "seen"
    register.type_spec.bitstring.bit.bitwidth = 128
    profile.preamble.id, profile.preamble.name, profile.preamble.alias = SPRAY, "mini.spray", "spray"
    return info


def frame(op: int, *, dst: int = 1, src: int = 2, a: int = 0, b: int = 0, c: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame of the program (see mini_program.c)."""
    head = dst.to_bytes(6, "big") + src.to_bytes(6, "big") + b"\x88\xb5" + bytes([op])
    return head + a.to_bytes(4, "big") + b.to_bytes(2, "big") + bytes([c]) + payload
