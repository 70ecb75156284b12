"""Members and groups of a device's action profiles (switch/device/device.py)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.entities import Group, GroupMember, ProfileMember, TableError
from mrc_testbed.switch.device.port_numbers import DROP_PORT
from mrc_testbed.switch.device.schema import Profile
from mrc_testbed.switch.device.state import DeviceState, check, uint32

MAX_WEIGHT = 65536
"""Largest sum of weights of a group whose selector sets no bound."""

_WORDS3 = struct.Struct("=III")


class ActionProfiles:
    """The members and groups of all action profiles of a device. All methods raise TableError."""

    def __init__(self, state: DeviceState) -> None:
        self._state = state

    def insert_member(self, member: ProfileMember) -> None:
        """Add a member. ALREADY_EXISTS, RESOURCE_EXHAUSTED."""
        self._write_member(native.INSERT, member)

    def modify_member(self, member: ProfileMember) -> None:
        """Change a member's action; entries and groups that use it follow at once."""
        self._write_member(native.MODIFY, member)

    def delete_member(self, member: ProfileMember) -> None:
        """Delete a member. FAILED_PRECONDITION while an entry or a group uses it."""
        self._write_member(native.DELETE, member)

    def _write_member(self, op: int, member: ProfileMember) -> None:
        with self._state.lock:
            schema = self._state.schema
            profile = schema.find(schema.profiles, member.profile_id, "action profile")
            uint32(member.member_id, f"{profile.name}: member id")
            index, block = 0, b""
            if op != native.DELETE:
                if member.action is None:
                    raise TableError("INVALID_ARGUMENT", f"{profile.name}: a member needs an action")
                index, block = schema.encode_action(member.action, profile.name, profile.actions)
            previous = self._previous(self.read_members, member.profile_id, member.member_id)
            error = self._state.lib.rt_member_write(
                self._state.handle, op, profile.index, member.member_id, index, block
            )
            subject = f"member {member.member_id}"
            check(error, profile.name, subject, f"has room for {profile.size} members")
            self._state.on_undo(partial(self._write_member, native.INVERSE[op], previous or member))

    def _previous(self, read: Callable[[int, int], Iterator[Any]], profile_id: int, id_: int) -> Any:
        """Return the current object while in a transaction; None outside of one, or without an object."""
        return None if not self._state.in_transaction else next(read(profile_id, id_), None)

    def read_members(self, profile_id: int = 0, member_id: int = 0) -> Iterator[ProfileMember]:
        """Members of a profile (0: of all), one of them when `member_id` is given (none if it does not exist)."""
        with self._state.lock:
            out = []
            for profile in self._profiles(profile_id):
                count, block = native.take_block(self._state.lib.rt_members_read, self._state.handle, profile.index)
                check(min(count, 0), profile.name, "profile", "")
                offset = 0
                for _ in range(count):
                    id_, action, size = _WORDS3.unpack_from(block, offset)
                    offset += _WORDS3.size
                    if member_id in (0, id_):
                        call = self._state.schema.decode_action(action, block[offset : offset + size])
                        out.append(ProfileMember(profile.id, id_, call))
                    offset += size
        return iter(out)

    def insert_group(self, group: Group) -> None:
        """Add a group, with or without members. ALREADY_EXISTS, NOT_FOUND (a member), RESOURCE_EXHAUSTED."""
        self._write_group(native.INSERT, group)

    def modify_group(self, group: Group) -> None:
        """Replace the members of a group."""
        self._write_group(native.MODIFY, group)

    def delete_group(self, group: Group) -> None:
        """Delete a group. FAILED_PRECONDITION while an entry uses it."""
        self._write_group(native.DELETE, group)

    def _write_group(self, op: int, group: Group) -> None:
        with self._state.lock:
            schema = self._state.schema
            profile = schema.find(schema.profiles, group.profile_id, "action profile")
            if not profile.selector:
                raise TableError("INVALID_ARGUMENT", f"{profile.name}: is no action selector, so it has no groups")
            uint32(group.group_id, f"{profile.name}: group id")
            if op == native.DELETE:
                group = Group(group.profile_id, group.group_id)
            else:
                self._check_slots(profile, group)
            previous = self._previous(self.read_groups, group.profile_id, group.group_id)
            if op == native.MODIFY:
                self._check_same_size(profile, group)
            slots = (native.MemberPlace * len(group.members))(
                *(native.MemberPlace(m.member_id, m.weight, _watch_port(m)) for m in group.members)
            )
            error = self._state.lib.rt_group_write(
                self._state.handle, op, profile.index, group.group_id, group.max_size, len(slots), slots
            )
            check(error, profile.name, f"group {group.group_id}", "has room for no more groups")
            self._state.on_undo(partial(self._write_group, native.INVERSE[op], previous or group))

    def _check_same_size(self, profile: Profile, group: Group) -> None:
        for read_group in self.read_groups(profile.id, group.group_id):
            if read_group.max_size != group.max_size:
                text = f"max_size is {read_group.max_size} since its insertion and cannot become {group.max_size}"
                raise TableError("INVALID_ARGUMENT", f"{profile.name}: group {group.group_id}: {text}")

    def _check_slots(self, profile: Profile, group: Group) -> None:
        subject = f"{profile.name}: group {group.group_id}"
        bound = profile.max_group_size or MAX_WEIGHT
        if not 0 <= group.max_size <= bound:
            code = "INVALID_ARGUMENT" if profile.max_group_size or group.max_size < 0 else "RESOURCE_EXHAUSTED"
            raise TableError(code, f"{subject}: max_size {group.max_size} is not in 0..{bound}")
        member_ids = {m.member_id for m in self.read_members(profile.id)}
        for member in group.members:
            if member.member_id not in member_ids:
                has = ", ".join(map(str, sorted(member_ids))) or "none"
                raise TableError("NOT_FOUND", f"{subject}: no member {member.member_id} (has: {has})")
        if len({m.member_id for m in group.members}) != len(group.members):
            raise TableError("INVALID_ARGUMENT", f"{subject}: a member is given twice")
        slots = [(member.weight, member.watch_port) for member in group.members]
        check_weights(profile, subject, slots, group.max_size, "RESOURCE_EXHAUSTED")

    def read_groups(self, profile_id: int = 0, group_id: int = 0) -> Iterator[Group]:
        """Groups of a profile (0: of all selectors), one of them when `group_id` is given."""
        with self._state.lock:
            out = []
            for profile in self._profiles(profile_id):
                count, block = native.take_block(self._state.lib.rt_groups_read, self._state.handle, profile.index)
                check(min(count, 0), profile.name, "profile", "")
                offset = 0
                for _ in range(count):
                    id_, max_size, n = _WORDS3.unpack_from(block, offset)
                    offset += _WORDS3.size
                    slots = [struct.unpack_from("=IIi", block, offset + 12 * i) for i in range(n)]
                    offset += 12 * n
                    members = tuple(GroupMember(m, w, None if p < 0 else p) for m, w, p in slots)
                    if group_id in (0, id_):
                        out.append(Group(profile.id, id_, members, max_size))
        return iter(out)

    def _profiles(self, profile_id: int) -> list[Profile]:
        schema = self._state.schema
        if profile_id:
            return [schema.find(schema.profiles, profile_id, "action profile")]
        return list(schema.profiles.values())


def _watch_port(member: GroupMember) -> int:
    """Return the watch port as in struct rt_place; -1: none."""
    return -1 if member.watch_port is None else member.watch_port


def check_weights(
    profile: Profile, subject: str, slots: list[tuple[int, int | None]], max_size: int, code: str
) -> None:
    """Check weights, watch ports and size of a group or a one-shot set.

    The size is the sum of the weights, or the number of members. Raises TableError with `code` when it is too large,
    else INVALID_ARGUMENT.
    """
    max_weight = profile.max_member_weight or MAX_WEIGHT
    for weight, port in slots:
        if not 0 < weight <= max_weight:
            raise TableError("INVALID_ARGUMENT", f"{subject}: weight {weight} is not in 1..{max_weight}")
        if port is not None and not 0 <= port < DROP_PORT:
            raise TableError("INVALID_ARGUMENT", f"{subject}: watch port {port} is not a port")
    total = sum(weight for weight, _ in slots)
    if total > MAX_WEIGHT:
        raise TableError("RESOURCE_EXHAUSTED", f"{subject}: weights sum to {total}, at most {MAX_WEIGHT}")
    size, bound = len(slots) if profile.by_members else total, max_size or profile.max_group_size or MAX_WEIGHT
    if size > bound:
        size_text = "members" if profile.by_members else "weights sum to"
        raise TableError(code, f"{subject}: {size_text} {size}, at most {bound}")
