"""Multicast groups and clone sessions: P4Runtime <-> switch.device.entities.

P4Runtime's entity is PacketReplicationEngineEntry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import CloneSession, MulticastGroup, Replica
from mrc_testbed.switch.device.schema import canonical
from mrc_testbed.switch.server.p4runtime.errors import RpcError
from mrc_testbed.switch.server.p4runtime.translate import integer


def replication_in(sent: p4r.PacketReplicationEngineEntry, *, key_only: bool = False) -> MulticastGroup | CloneSession:
    """`key_only`: nothing but the id is looked at. Raises RpcError INVALID_ARGUMENT, UNIMPLEMENTED."""
    kind = sent.WhichOneof("type")
    if kind == "multicast_group_entry":
        group = sent.multicast_group_entry
        if key_only:
            return MulticastGroup(group.multicast_group_id)
        return MulticastGroup(group.multicast_group_id, _replicas(group.replicas), group.metadata)
    if kind == "clone_session_entry":
        session = sent.clone_session_entry
        if not session.session_id:
            raise RpcError(rpc_code.INVALID_ARGUMENT, "clone session 0: the id 0 is for reading all of them")
        if key_only:
            return CloneSession(session.session_id)
        replicas = _replicas(session.replicas)
        return CloneSession(session.session_id, replicas, session.class_of_service, session.packet_length_bytes)
    raise RpcError(rpc_code.INVALID_ARGUMENT, "a packet replication entry needs a multicast group or a clone session")


def _replicas(sent: Any) -> tuple[Replica, ...]:
    out = []
    for replica in sent:
        if replica.backup_replicas:
            raise RpcError(rpc_code.UNIMPLEMENTED, "backup replicas are not supported")
        as_bytes = replica.WhichOneof("port_kind") == "port"
        port = integer(replica.port, "port of a replica") if as_bytes else replica.egress_port
        out.append(Replica(port, replica.instance, as_bytes))
    return tuple(out)


def replication_out(entry: MulticastGroup | CloneSession) -> p4r.PacketReplicationEngineEntry:
    """Ports in the form in which they were written."""
    out = p4r.PacketReplicationEngineEntry()
    if isinstance(entry, CloneSession):
        session = out.clone_session_entry
        session.session_id = entry.session_id
        session.class_of_service = entry.class_of_service
        session.packet_length_bytes = entry.length
        replicas = session.replicas
    else:
        out.multicast_group_entry.multicast_group_id = entry.group_id
        out.multicast_group_entry.metadata = entry.metadata
        replicas = out.multicast_group_entry.replicas
    for replica in entry.replicas:
        if replica.as_bytes:
            replicas.add(instance=replica.rid, port=canonical(replica.port))
        else:
            replicas.add(instance=replica.rid, egress_port=replica.port)
    return out


def read_replication(device: P4Device, entry_filter: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
    """Everything that a filter selects: no kind means both, an id of 0 means all."""
    kind = entry_filter.WhichOneof("type")
    entries: list[MulticastGroup | CloneSession] = []
    if kind in (None, "multicast_group_entry"):
        number = entry_filter.multicast_group_entry.multicast_group_id
        entries += [entry for entry in device.read_multicast() if number in (0, entry.group_id)]
    if kind in (None, "clone_session_entry"):
        number = entry_filter.clone_session_entry.session_id
        entries += [entry for entry in device.read_sessions() if number in (0, entry.session_id)]
    for entry in entries:
        yield p4r.Entity(packet_replication_engine_entry=replication_out(entry))
