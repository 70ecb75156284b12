"""Session of p4runtime-shell, run by its own Python (test_service_shell.py).

Usage: python shell_script.py PORT P4INFO CONFIG.
"""

import os
import sys
import traceback

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException


def fail(*error):
    """End the process at once; the client's threads would keep it alive."""
    traceback.print_exception(*error)
    sys.stderr.flush()
    os._exit(1)


sys.excepthook = fail
port, info, config = sys.argv[1:]
sh.setup(
    device_id=1, grpc_addr=f"127.0.0.1:{port}", election_id=(0, 1), config=sh.FwdPipeConfig(info, config), verbose=False
)


def count(entity):
    return sum(1 for _ in entity.read())


def expect_error(call, code):
    try:
        call()
    except P4RuntimeWriteException as error:
        ((_, detail),) = error.errors
        assert detail.canonical_code == code, detail
        return
    raise AssertionError("not refused")


# table entries: all kinds of matches, metadata, default entry, direct counter and meter
te = sh.TableEntry("route")(action="forward")
te.match["h.h.a"] = "10.0.0.0/8"
te.action["port"] = "3"
te.insert()
expect_error(te.insert, 6)
te.action["port"] = "4"
te.modify()
(read,) = list(te.read())
assert [param.value for param in read.action.msg().params] == [b"\4"]
te.action["port"] = "0x1ff"
te.modify()
acl = sh.TableEntry("acl")(action="drop", priority=10)
acl.match["h.h.b"] = "0x10&&&0xf0"
acl.match["h.h.c"] = "3..9"
acl.match["h.h.d"] = "7"
acl.metadata = b"mine"
acl.insert()
assert [acl_entry.metadata for acl_entry in sh.TableEntry("acl").read()] == [b"mine"]
expect_error(acl.insert, 6)
wild = sh.TableEntry("acl")(action="drop", priority=9)
wild.insert()
assert count(sh.TableEntry("acl")) == 2
default = sh.TableEntry("route")(action="drop", is_default=True)
default.modify()
assert [default_entry.action.action_name for default_entry in default.read()] == ["I.drop"]
hits = sh.DirectCounterEntry("hits")
hits.table_entry.match["h.h.a"] = "10.0.0.0/8"
hits.packet_count = 5
hits.modify()
assert [hit_count.packet_count for hit_count in hits.read()] == [5]

# action selector: one-shot, then members and a group
one_shot_entry = sh.TableEntry("pick")
one_shot_entry.match["h.h.a"] = "1"
shot = sh.Oneshot("pick")
first = sh.Action("to")
first["port"] = "1"
shot.add(first, weight=2).add(first)
one_shot_entry.oneshot = shot
one_shot_entry.insert()
(read,) = list(sh.TableEntry("pick").read())
actions = [
    (action_profile_action.action.params[0].value, action_profile_action.weight)
    for action_profile_action in read.oneshot.msg().action_profile_actions
]
assert actions == [(b"\1", 2), (b"\1", 1)], actions
member = sh.ActionProfileMember("ap")(member_id=1, action="to")
member.action["port"] = "5"
expect_error(member.insert, 3)
one_shot_entry.delete()
member.insert()
group = sh.ActionProfileGroup("ap")(group_id=1)
group.add(1, weight=3)
group.insert()
group_entry = sh.TableEntry("pick")
group_entry.match["h.h.a"] = "2"
group_entry.group_id = 1
group_entry.insert()
expect_error(group.delete, 9)
assert [(g.group_id, len(g.members)) for g in sh.ActionProfileGroup("ap").read()] == [(1, 1)]
group_entry.delete()
group.delete()
member.delete()

# cells, replication, digests
cell = sh.CounterEntry("cells")
cell.index = 3
cell.packet_count = 9
cell.modify()
all_cells = sh.CounterEntry("cells")
assert [cell_entry.packet_count for cell_entry in all_cells.read()] == [0, 0, 0, 9]
meter = sh.MeterEntry("rates")
meter.index = 1
meter.cir, meter.cburst, meter.pir, meter.pburst = 1, 2, 3, 4
meter.modify()
assert [(m.cir, m.pburst) for m in meter.read()] == [(1, 4)]
mg = sh.MulticastGroupEntry(7)
mg.add(1, 1).add(2, 2)
mg.insert()
assert [len(m.replicas) for m in sh.MulticastGroupEntry(7).read()] == [2]
mg.delete()
cs = sh.CloneSessionEntry(3)
cs.add(4, 0)
cs.insert()
assert [c.session_id for c in sh.CloneSessionEntry(3).read()] == [3]
digest = sh.DigestEntry("seen_t")
digest.max_list_size = 1
digest.ack_timeout_ns = 10**12
digest.insert()

# packets out and in, digests and idle timeouts on the stream
out = sh.PacketOut(payload=b"\x0a\x00\x00\x01" + bytes(3), port="510")
out.send()
packet = sh.client.stream_in_q["packet"].get(timeout=20)
assert packet.packet.payload[:4] == b"\x0a\x00\x00\x01", packet
digest_list = sh.client.stream_in_q["digest"].get(timeout=20)
assert digest_list.digest.data[0].struct.members[0].bitstring == b"\x0a\x00\x00\x01"
te.delete()
te.idle_timeout_ns = 20_000_000
te.insert()
note = sh.client.stream_in_q["idle_timeout_notification"].get(timeout=20)
assert note.idle_timeout_notification.table_entry[0].idle_timeout_ns == 20_000_000
for acl_entry in list(sh.TableEntry("acl").read()):
    acl_entry.delete()
assert count(sh.TableEntry("acl")) == 0
sh.teardown()
print("done")
