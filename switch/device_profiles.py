"""Members and groups of a device's action profiles (switch/device.py)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from switch import native
from switch.device_base import DROP_PORT, DeviceBase, check, uint32
from switch.entities import Group, GroupMember, Member, TableError
from switch.schema import Profile

MAX_WEIGHT = 65536
"""Largest sum of weights of a group whose selector sets no bound."""

_WORDS3 = struct.Struct("=III")


class Profiles(DeviceBase):
    """All methods raise TableError."""

    # ---- action profiles --------------------------------------------------------------------------------------

    def insert_member(self, member: Member) -> None:
        """Add a member. ALREADY_EXISTS, RESOURCE_EXHAUSTED."""
        self._write_member(native.INSERT, member)

    def modify_member(self, member: Member) -> None:
        """Change a member's action; entries and groups that use it follow at once."""
        self._write_member(native.MODIFY, member)

    def delete_member(self, member: Member) -> None:
        """FAILED_PRECONDITION while an entry or a group uses it."""
        self._write_member(native.DELETE, member)

    def _write_member(self, op: int, member: Member) -> None:
        with self._lock:
            schema = self.schema
            profile = schema.find(schema.profiles, member.profile_id, "action profile")
            uint32(member.member_id, f"{profile.name}: member id")
            index, block = 0, b""
            if op != native.DELETE:
                if member.action is None:
                    raise TableError("INVALID_ARGUMENT", f"{profile.name}: a member needs an action")
                index, block = schema.encode_action(member.action, profile.name, profile.actions)
            error = self._lib.rt_member_write(self.handle, op, profile.index, member.member_id, index, block)
            what = f"member {member.member_id}"
            check(error, profile.name, what, f"has room for {profile.size} members")

    def read_members(self, profile_id: int = 0, member_id: int = 0) -> Iterator[Member]:
        """Members of a profile (0: of all), one of them when `member_id` is given (none if it does not exist)."""
        with self._lock:
            out = []
            for profile in self._profiles(profile_id):
                count, block = native.take_block(self._lib.rt_members_read, self.handle, profile.index)
                check(min(count, 0), profile.name, "profile", "")
                at = 0
                for _ in range(count):
                    id_, action, size = _WORDS3.unpack_from(block, at)
                    at += _WORDS3.size
                    if member_id in (0, id_):
                        call = self.schema.decode_action(action, block[at : at + size])
                        out.append(Member(profile.id, id_, call))
                    at += size
        return iter(out)

    def insert_group(self, group: Group) -> None:
        """Add a group, with or without members. ALREADY_EXISTS, NOT_FOUND (a member), RESOURCE_EXHAUSTED."""
        self._write_group(native.INSERT, group)

    def modify_group(self, group: Group) -> None:
        """Replace the members of a group."""
        self._write_group(native.MODIFY, group)

    def delete_group(self, group: Group) -> None:
        """FAILED_PRECONDITION while an entry uses it."""
        self._write_group(native.DELETE, group)

    def _write_group(self, op: int, group: Group) -> None:
        with self._lock:
            schema = self.schema
            profile = schema.find(schema.profiles, group.profile_id, "action profile")
            if not profile.selector:
                raise TableError("INVALID_ARGUMENT", f"{profile.name}: is no action selector, so it has no groups")
            uint32(group.group_id, f"{profile.name}: group id")
            if op != native.DELETE:
                self._check_places(profile, group)
            places = (native.Place * len(group.members))(
                *((m.member_id, m.weight, -1 if m.watch_port is None else m.watch_port) for m in group.members)
            )
            error = self._lib.rt_group_write(
                self.handle, op, profile.index, group.group_id, group.max_size, len(places), places
            )
            check(error, profile.name, f"group {group.group_id}", "has room for no more groups")

    def _check_places(self, profile: Profile, group: Group) -> None:
        what = f"{profile.name}: group {group.group_id}"
        bound = profile.max_group_size or MAX_WEIGHT
        if not 0 <= group.max_size <= bound:
            raise TableError("INVALID_ARGUMENT", f"{what}: max_size {group.max_size} is not in 0..{bound}")
        known = {m.member_id for m in self.read_members(profile.id)}
        for place in group.members:
            if place.member_id not in known:
                has = ", ".join(map(str, sorted(known))) or "none"
                raise TableError("NOT_FOUND", f"{what}: no member {place.member_id} (has: {has})")
            if not 0 < place.weight <= MAX_WEIGHT:
                raise TableError("INVALID_ARGUMENT", f"{what}: weight {place.weight} is not in 1..{MAX_WEIGHT}")
            if place.watch_port is not None and not 0 <= place.watch_port < DROP_PORT:
                raise TableError("INVALID_ARGUMENT", f"{what}: watch port {place.watch_port} is not a port")
        if len({m.member_id for m in group.members}) != len(group.members):
            raise TableError("INVALID_ARGUMENT", f"{what}: a member is given twice")
        total = sum(m.weight for m in group.members)
        if total > (group.max_size or bound):
            raise TableError("RESOURCE_EXHAUSTED", f"{what}: weights sum to {total}, at most {group.max_size or bound}")

    def read_groups(self, profile_id: int = 0, group_id: int = 0) -> Iterator[Group]:
        """Groups of a profile (0: of all selectors), one of them when `group_id` is given."""
        with self._lock:
            out = []
            for profile in self._profiles(profile_id):
                count, block = native.take_block(self._lib.rt_groups_read, self.handle, profile.index)
                check(min(count, 0), profile.name, "profile", "")
                at = 0
                for _ in range(count):
                    id_, max_size, n = _WORDS3.unpack_from(block, at)
                    at += _WORDS3.size
                    places = [struct.unpack_from("=IIi", block, at + 12 * i) for i in range(n)]
                    at += 12 * n
                    members = tuple(GroupMember(m, w, None if p < 0 else p) for m, w, p in places)
                    if group_id in (0, id_):
                        out.append(Group(profile.id, id_, members, max_size))
        return iter(out)

    def _profiles(self, profile_id: int) -> list[Profile]:
        schema = self.schema
        if profile_id:
            return [schema.find(schema.profiles, profile_id, "action profile")]
        return list(schema.profiles.values())
