"""Rights of a role: the role configuration of P4Runtime's arbitration (specification, "Role Config").

The specification leaves the scheme to server and clients. Ours is Stratum's, `stratum.P4RoleConfig`, which finsy knows:

* `exclusive_p4_ids`, `shared_p4_ids`: the role writes these objects (tables with their direct resources, action
  profiles, counters, meters, registers, digests, value sets) and no others; what is exclusive to one role is in no
  other role's lists. A Read with the role gives these only, and so do digests and idle timeouts.
* `receives_packet_ins`, `packet_in_filter`: whether it gets packet-ins, and only those with that metadata.
* `can_push_pipeline`: whether it may set the forwarding pipeline config.

A role without a configuration, the default role among them, may do everything. What no id stands for (multicast groups,
clone sessions) is for such roles only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from finsy.proto import p4r, rpc_code, stratum
from google.protobuf.message import DecodeError

from mrc_testbed.switch.server.p4runtime.errors import RpcError

_IDS = {
    "table_entry": "table_id",
    "action_profile_member": "action_profile_id", "action_profile_group": "action_profile_id",
    "counter_entry": "counter_id", "meter_entry": "meter_id", "register_entry": "register_id",
    "digest_entry": "digest_id", "value_set_entry": "value_set_id",
}  # fmt: skip
_DIRECT = ("direct_counter_entry", "direct_meter_entry")


@dataclass(frozen=True, slots=True)
class RoleScope:
    """Rights of a role. `ids` None: everything."""

    ids: frozenset[int] | None = None
    exclusive: frozenset[int] = frozenset()
    pushes: bool = True
    receives: bool = True
    packet_filter: tuple[int, bytes] | None = None

    def has(self, entity: p4r.Entity) -> bool:
        """Whether an entity belongs to the role."""
        return self.ids is None or entity_id(entity) in self.ids

    def has_id(self, number: int) -> bool:
        return self.ids is None or number in self.ids

    def wants(self, packet: p4r.PacketIn) -> bool:
        """Whether a packet-in is for the role."""
        if not self.receives or self.packet_filter is None:
            return self.receives
        return any((metadata.metadata_id, metadata.value) == self.packet_filter for metadata in packet.metadata)


FULL_SCOPE = RoleScope()


def entity_id(entity: p4r.Entity) -> int:
    """The P4Info id of the object that an entity belongs to; 0: there is none."""
    kind = entity.WhichOneof("entity")
    if kind in _DIRECT:
        return int(getattr(entity, kind).table_entry.table_id)
    return int(getattr(getattr(entity, kind), _IDS[kind])) if kind in _IDS else 0


def scope_of(role: p4r.Role) -> RoleScope:
    """Reads a role's configuration. Raises RpcError INVALID_ARGUMENT for one of another scheme."""
    if not role.HasField("config"):
        return FULL_SCOPE
    role_config = stratum.P4RoleConfig()
    subject = f"role {role.name!r}: role config {role.config.type_url or 'without type'}"
    if not role.config.Is(role_config.DESCRIPTOR):
        scheme = role_config.DESCRIPTOR.full_name
        text = f"{subject} is not supported (want {scheme}, or none: the role may do everything then)"
        raise RpcError(rpc_code.INVALID_ARGUMENT, text)
    try:
        role.config.Unpack(role_config)
    except DecodeError as error:
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"{subject} cannot be decoded: {error}") from None
    exclusive, shared_ids = frozenset(role_config.exclusive_p4_ids), frozenset(role_config.shared_p4_ids)
    if exclusive & shared_ids:
        text = f"{subject}: {min(exclusive & shared_ids):#x} is both exclusive and shared"
        raise RpcError(rpc_code.INVALID_ARGUMENT, text)
    packet_filter = None
    if role_config.HasField("packet_in_filter"):
        packet_filter = (role_config.packet_in_filter.metadata_id, role_config.packet_in_filter.value)
    return RoleScope(
        exclusive | shared_ids, exclusive, role_config.can_push_pipeline, role_config.receives_packet_ins, packet_filter
    )


def check_exclusive(name: str, scope: RoleScope, other_scopes: Iterable[tuple[str, RoleScope]]) -> None:
    """Raises RpcError INVALID_ARGUMENT when `scope` and that of another role claim the same object."""
    for other_name, other_scope in other_scopes:
        common_ids = scope.exclusive & (other_scope.ids or frozenset()) | other_scope.exclusive & (
            scope.ids or frozenset()
        )
        if common_ids:
            text = f"role {name!r}: {min(common_ids):#x} is exclusive, and role {other_name!r} has it too"
            raise RpcError(rpc_code.INVALID_ARGUMENT, text)
