"""P4Runtime client arbitration of one device (P4Runtime §5): which clients may write. Without gRPC.

Controllers hold election ids, per role: the empty name is the default role, switch/server/p4runtime/roles.py says what
a role may do. The primary is the one whose id is at least as high as any id ever seen in that role; when it leaves
there is none until one asks with such an id, and the backups are told so (status NOT_FOUND), upon which they ask. A
device that loses power forgets the ids too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import U128, p4r, rpc_code, rpc_status

from mrc_testbed.switch.server.p4runtime.errors import RpcError
from mrc_testbed.switch.server.p4runtime.roles import FULL_SCOPE, RoleScope, check_exclusive, scope_of

MAX_CONTROLLERS = 64
"""Open streams of one role on one device."""
MAX_ROLES = 256
"""Roles of one device, with those whose controllers have left: their election ids are remembered."""
UNSET = -1
"""Election id of a controller that gives none: lower than any."""


class ArbitrationError(RpcError):
    """The stream is to be closed with this google.rpc code and text."""


def election_id_of(message: Any) -> int:
    """The election id of a request; UNSET is not the id 0."""
    return U128.decode(message.election_id) if message.HasField("election_id") else UNSET


@dataclass(eq=False, slots=True)
class ArbitratedController:
    """One StreamChannel. `send` queues a message for it and never blocks."""

    send: Callable[[p4r.StreamMessageResponse], None]
    joined: bool = False
    role: p4r.Role | None = None
    election_id: int = UNSET
    """Election id; a controller with UNSET never becomes primary."""

    @property
    def role_name(self) -> str:
        return self.role.name if self.role is not None else ""


@dataclass(slots=True)
class _Role:
    controllers: list[ArbitratedController] = field(default_factory=list)
    highest: int = UNSET
    """Highest election id of any primary so far."""
    primary: ArbitratedController | None = None
    config: p4r.Role = field(default_factory=p4r.Role)
    """Role configuration of the last primary."""
    scope: RoleScope = FULL_SCOPE


class Arbitration:
    """The controllers of one device."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._roles: dict[str, _Role] = {}

    @property
    def controllers(self) -> list[ArbitratedController]:
        return [controller for role in self._roles.values() for controller in role.controllers]

    def primaries(self) -> list[tuple[ArbitratedController, RoleScope]]:
        """The primary of each role that has one, and what it may do."""
        return [(role.primary, role.scope) for role in self._roles.values() if role.primary is not None]

    def is_primary(self, controller: ArbitratedController) -> bool:
        return any(controller is primary for primary, _ in self.primaries())

    def knows(self, role_name: str) -> bool:
        """Whether a controller has come with this role; the default role is there always."""
        return not role_name or role_name in self._roles

    def role_names(self) -> list[str]:
        return sorted(name for name in self._roles if name)

    def scope(self, role_name: str) -> RoleScope:
        role = self._roles.get(role_name)
        return role.scope if role is not None else FULL_SCOPE

    def primary_election_id(self, role_name: str = "") -> int | None:
        role = self._roles.get(role_name)
        return role.primary.election_id if role is not None and role.primary is not None else None

    def may_write(self, role_name: str, election_id: int) -> bool:
        """Whether a request with that role and election id comes from a primary."""
        return election_id != UNSET and self.primary_election_id(role_name) == election_id

    def update(self, controller: ArbitratedController, message: p4r.MasterArbitrationUpdate) -> None:
        """Takes a MasterArbitrationUpdate and notifies whom it concerns. Raises ArbitrationError."""
        election_id = election_id_of(message)
        name = message.role.name
        if controller.joined:
            self._check_same(controller, message)
        scope = scope_of(message.role)
        role = self._roles.get(name) or _Role()
        if election_id >= 0 and any(
            peer.election_id == election_id for peer in role.controllers if peer is not controller
        ):
            raise ArbitrationError(
                rpc_code.INVALID_ARGUMENT,
                f"Election id {election_id} is already used by another controller of device {self.device_id}"
                + (f", role {name!r}" if name else "")
                + f" (highest so far: {role.highest}; a higher one becomes primary)",
            )
        becomes = election_id >= 0 and election_id >= role.highest
        # Only the scope of a new primary takes effect, so only it can overlap that of another role.
        if becomes:
            other_roles = [
                (key, other_role.scope)
                for key, other_role in self._roles.items()
                if key != name and other_role.controllers
            ]
            check_exclusive(name, scope, other_roles)
        if not controller.joined:
            if len(self._roles) >= MAX_ROLES and name not in self._roles:
                text = f"device {self.device_id} has {MAX_ROLES} roles already: use one of them"
                raise ArbitrationError(rpc_code.RESOURCE_EXHAUSTED, text)
            if len(role.controllers) >= MAX_CONTROLLERS:
                raise ArbitrationError(
                    rpc_code.RESOURCE_EXHAUSTED,
                    f"device {self.device_id} has {MAX_CONTROLLERS} controllers already: close one",
                )
            role.controllers.append(controller)
            controller.joined = True
            self._roles[name] = role
        # All checks are done: a refused update has changed nothing.
        controller.role = message.role if message.HasField("role") else None
        controller.election_id = election_id
        if becomes:
            role.config, role.scope = message.role, scope
        self._elect(role, controller)

    def _check_same(self, controller: ArbitratedController, message: p4r.MasterArbitrationUpdate) -> None:
        if message.device_id != self.device_id:
            raise ArbitrationError(
                rpc_code.FAILED_PRECONDITION,
                f"this stream belongs to device {self.device_id}: open another for device {message.device_id}",
            )
        if message.role.name != controller.role_name:
            raise ArbitrationError(
                rpc_code.FAILED_PRECONDITION,
                f"this stream has role {controller.role_name!r}: open another for role {message.role.name!r}",
            )

    def _elect(self, role: _Role, controller: ArbitratedController) -> None:
        """P4Runtime §5.3: who is primary after `controller` came or changed its id, and who is notified."""
        old_primary = role.primary
        if controller.election_id >= 0 and controller.election_id >= role.highest:
            role.highest = controller.election_id
            role.primary = controller
        elif old_primary is controller:
            role.primary = None
        if role.primary is old_primary and old_primary is not controller:
            self._notify(role, controller)
        else:
            for peer in tuple(role.controllers):
                self._notify(role, peer)

    def leave(self, controller: ArbitratedController) -> None:
        """The stream is closed; the others of its role are notified when it was the primary."""
        role = self._roles.get(controller.role_name)
        if role is None or controller not in role.controllers:
            return
        role.controllers.remove(controller)
        controller.joined = False
        if role.primary is controller:
            role.primary = None
            for peer in tuple(role.controllers):
                self._notify(role, peer)

    def _notify(self, role: _Role, controller: ArbitratedController) -> None:
        if role.primary is controller:
            status = rpc_status.Status(code=rpc_code.OK, message="you are the primary")
        elif role.primary is not None:
            status = rpc_status.Status(code=rpc_code.ALREADY_EXISTS, message="another controller is the primary")
        else:
            status = rpc_status.Status(code=rpc_code.NOT_FOUND, message="there is no primary")
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id, role=controller.role, status=status)
        if update.HasField("role"):
            update.role.ClearField("config")
            if role.config.HasField("config"):
                update.role.config.CopyFrom(role.config.config)
        if role.highest >= 0:
            update.election_id.CopyFrom(U128.encode(role.highest))
        controller.send(p4r.StreamMessageResponse(arbitration=update))
