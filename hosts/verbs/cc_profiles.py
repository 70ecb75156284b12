"""CC profiles of the verbs: congestion control of `mrc_ctl.h` over the engine's table (§10.4)."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

from mrc_testbed.hosts.engine.cc.ccprofile import CcProfile, ProfileState
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.qp import EngineQueuePair
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.control_types import (
    AUTO_PROFILE,
    INIT,
    MAX_CC_PROFILES,
    OFFLINE,
    ONLINE,
    check_capacity,
    check_changes,
    comma_list,
    number_of,
    state_after,
)
from mrc_testbed.hosts.verbs.errors import VerbsError


@dataclass(slots=True)
class _Entry:
    """One profile. The engine has it, under a number of its own, while it is ONLINE."""

    state: ProfileState = INIT
    profile: CcProfile = field(default_factory=CcProfile)
    users: set[EngineQueuePair] = field(default_factory=set)
    engine_id: int = 0


class CcProfileTable:
    """The CC profiles of one device."""

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._cc: dict[int, _Entry] = {}

    def modify_cc_profile(
        self, profile_id: int, *, state: ProfileState | None = None, algorithm: str | Any | None = ..., **config: Any
    ) -> None:
        """Write a CC profile, then move it to `state`.

        `algorithm`: one of `query_device().cc_algorithms`, None = no control.

        `config`: the parameters of §10.4 under their names and in their units (hosts.engine.cc.ccprofile.CcProfile).
        """
        with self._context.lock:
            subject = f"CC profile {profile_id}"
            if number_of(profile_id, "CC profile") == AUTO_PROFILE:
                raise VerbsError("CC profile 0 is the endpoint's configuration: change that instead")
            entry = self._cc.get(profile_id) or _Entry()
            changes = dict(config) if algorithm is ... else {"algorithm": algorithm, **config}
            check_changes(entry.state, state, subject, **dict.fromkeys(changes, True))  # None is a value too
            try:
                profile = CcProfile.from_json({**entry.profile.to_json(), **changes})
            except LocalError as error:
                raise VerbsError(f"{subject}: {error}") from None
            old_state, new_state = entry.state, state_after(entry.state, state, subject)
            if old_state is ONLINE and new_state is OFFLINE and entry.users:
                raise VerbsError(
                    f"{subject} is used by {len(entry.users)} QPs: destroy or reset these first", errno.EBUSY
                )
            if new_state is INIT:
                self._cc.pop(profile_id, None)
                return
            check_capacity(self._cc, profile_id, MAX_CC_PROFILES, subject)
            if new_state is not old_state and ONLINE in (old_state, new_state):
                self._update_engine(entry, profile, new_state is ONLINE)
            entry.state, entry.profile = new_state, profile
            self._cc[profile_id] = entry

    def _update_engine(self, entry: _Entry, profile: CcProfile, online: bool) -> None:
        table = self._context.driver.endpoint.cc_profiles
        if online:
            entry.engine_id = table.create(profile)
            table.move(entry.engine_id, OFFLINE)
            table.move(entry.engine_id, ONLINE)
        else:
            table.move(entry.engine_id, OFFLINE)
            table.destroy(entry.engine_id)

    def query_cc_profile(self, profile_id: int) -> tuple[ProfileState, CcProfile]:
        """Return state and parameters; None in a field: derived from the measured pipe."""
        entry = self._cc.get(number_of(profile_id, "CC profile")) or _Entry()
        return entry.state, entry.profile

    def check(self, profile_id: int | None, subject: str) -> None:
        """Whether a QP may use it now (called by QPs)."""
        if not profile_id:
            return
        entry = self._cc.get(profile_id) or _Entry()
        if entry.state is not ONLINE:
            online = comma_list([i for i, candidate in self._cc.items() if candidate.state is ONLINE])
            text = f"{subject}: CC profile {profile_id} is {entry.state.name}, needs ONLINE (online: {online})"
            raise VerbsError(text, errno.ENOENT)

    def engine_id(self, profile_id: int) -> int:
        """Return the engine's number of an ONLINE profile (called by QPs)."""
        return self._cc[profile_id].engine_id

    def attach(self, qp: EngineQueuePair, profile_id: int | None) -> None:
        """Count a QP that connected with the profile (None, 0: with the configuration)."""
        if profile_id:
            self._cc[profile_id].users.add(qp)

    def detach(self, qp: EngineQueuePair) -> None:
        """Count off a QP that is reset or destroyed."""
        for entry in self._cc.values():
            entry.users.discard(qp)
