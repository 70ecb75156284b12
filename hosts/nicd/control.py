"""Controller's requests of one program (mrc_ctl.h), over the controller of the host's device.

A program has the controller from its first request on, until it ends: others get EBUSY, those without the privilege
EPERM. Profiles are the device's, and stay.

EVs come as in C, left-aligned in 128 bits. How many of these an EV of a profile has, its fields say, or its format.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from struct import Struct
from typing import Final, TypeVar

from mrc_testbed.hosts.engine.cc.ccprofile import QA_THRESHOLD_OFF, CcProfile, ProfileState
from mrc_testbed.hosts.nicd.layout import (
    CC_VALUES,
    EP_COUNT,
    EP_RESPONSE,
    EP_VALUES,
    EV_ENTRY_VALUES,
    EV_VALUES,
    FIELD_VALUES,
    MAX_VALUES,
    NAME_VALUES,
    gid_halves,
    gid_text,
    halves,
)
from mrc_testbed.hosts.nicd.messages import MessageError, Reply, event_socket
from mrc_testbed.hosts.nicd.rings import CompletionRing
from mrc_testbed.hosts.verbs.checks import choice, flags
from mrc_testbed.hosts.verbs.control import Controller, EpBatch
from mrc_testbed.hosts.verbs.control_types import (
    INIT,
    MAX_OP_ENTRIES,
    OFFLINE,
    ONLINE,
    EpOp,
    EpRequest,
    EvEntry,
    EvMode,
    EvOp,
    EvOpEntry,
    EvProfileAttr,
    EvStateMask,
)
from mrc_testbed.hosts.verbs.cq import CompletionChannel
from mrc_testbed.hosts.verbs.device import Device
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.ev_events import EvEventCq
from mrc_testbed.hosts.verbs.fields import MAX_WIDTH, EvField, EvFormat, packed_width

MAX_BATCHES: Final = 64
"""Batches of endpoint operations of one program at a time; each in flight holds a descriptor."""
MAX_BATCH_REQUESTS: Final = 1024
_STATES: Final = (INIT, OFFLINE, ONLINE)
"""States of a profile by their numbers in C."""
_EV_OPS: Final = (EvOp.REPLACE_EV, EvOp.MODIFY_STATE, EvOp.QUERY_STATE)
"""Operations on entries by their numbers in C."""
_ALL_COPIES: Final = 1
"""MRC_CTL_EV_OP_F_ALL_COPIES."""
_AUTO_WIDTH: Final = 32
"""Bits of an EV of an AUTO profile: the engine's."""
_EV_BITS: Final = 128
_U32: Final = (1 << 32) - 1
_NAME: Final = Struct(f"<{NAME_VALUES}Q")
_FLOAT: Final = Struct("<f")
_FLOAT_BITS: Final = Struct("<I")
_CC_FIELDS: Final = (
    "disable_qa",
    "adjust_bytes_threshold",
    "adjust_period_threshold",
    "base_rtt",
    "eta",
    "fi",
    "fi_scale",
    "gamma",
    "max_md_jump",
    "max_cwnd",
    "qa_gate",
    "qa_threshold",
    "target_delay",
)
"""Fields of struct mrc_ctl_cc_nscc_cfg in its order, as CcProfile calls them too."""
_FLOAT_FIELDS: Final = {"eta", "fi", "fi_scale", "gamma", "max_md_jump"}
_DERIVED_AT_ZERO: Final = {"adjust_period_threshold", "base_rtt", "max_cwnd", "target_delay"}
"""Fields that cannot be 0: the device derives them then, as CcProfile does where they are None."""
T = TypeVar("T")


class ProgramControl:
    """Controller's requests of a program; see the module.

    The methods without underscore answer NICD_OP_CTL_* of the same name, with its values.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._numbers = count(1)
        self._unsent: dict[int, list[EpRequest]] = {}
        """Batches whose requests are still coming, by number."""
        self._in_flight: dict[socket.socket, EpBatch] = {}
        """Batches that were sent, by our end of the socket on which the program waits."""
        self._evs: list[EvOpEntry] = []
        """EVs of the profile that was asked for last: later pieces of the answer are of the same moment."""

    @property
    def _controller(self) -> Controller:
        return self._device.controller

    def close(self) -> None:
        """End the batches in flight; the controller ends with the program's device."""
        for nic_end in self._in_flight:
            nic_end.close()
        self._in_flight.clear()

    # ---- device and ports -----------------------------------------------------------------------------------

    def query_device(self) -> Reply:
        attr = self._controller.query_device()
        values = [
            attr.mrc_ctl_protocol_version,
            attr.ev_max_fmt_profiles,
            attr.ev_max_profiles,
            attr.ev_max_count,
            attr.ev_free_count,
            attr.ev_max_count_profile,
            attr.ev_count_align,
            attr.ev_max_width,
            int(attr.ev_fmt_mode_mask),
            int(attr.ev_mode_mask),
            attr.ev_op_max_entries,
            attr.cc_max_profiles,
            attr.phy_port_mask,
            int(attr.opt_attr),
        ]
        return Reply(values + [value for name in attr.cc_algorithms for value in _name_values(name)])

    def query_port(self, port: int) -> Reply:
        return Reply([int(self._controller.query_port(port))])

    def modify_port(self, port: int, mask: int, state: int) -> Reply:
        controller = self._controller
        controller.context.plane_of(port)
        if mask & 1:
            if state > 1:
                raise VerbsError(f"port {port}: admin state {state}: must be 0 (disabled) or 1 (enabled)")
            controller.modify_port(port, bool(state))
        return Reply()

    # ---- EV format profiles ---------------------------------------------------------------------------------

    def query_ev_fmt(self, profile_id: int) -> Reply:
        form = self._controller.query_ev_fmt_profile(profile_id)
        return Reply([_STATES.index(form.state), int(form.mode or 0), *form.fields])

    def modify_ev_fmt(
        self, profile_id: int, mask: int, state: int, current_state: int, mode: int, *widths: int
    ) -> Reply:
        controller, subject = self._controller, f"EV format profile {profile_id}"
        _check_state(subject, controller.query_ev_fmt_profile(profile_id).state, _attribute(mask, 1, current_state))
        given_mode = _attribute(mask, 2, mode)
        controller.modify_ev_fmt_profile(
            profile_id,
            state=_state(subject, _attribute(mask, 0, state)),
            mode=None if given_mode is None else choice(f"{subject}: mode", given_mode, EvFormat),
            fields=_attribute(mask, 3, widths),
        )
        return Reply()

    # ---- EV profiles ----------------------------------------------------------------------------------------

    def query_ev_profile(self, profile_id: int) -> Reply:
        attr = self._controller.query_ev_profile(profile_id)
        values = [_STATES.index(attr.state or INIT), int(attr.mode or 0), attr.ev_fmt_profile_id or 0]
        values += [attr.ev_count or 0, attr.ev_min_active or 0, int(attr.ev_event_mask or 0)]
        for field in attr.fields or ():
            values += [field.width | field.init_val << 32, field.min_val | field.max_val << 32, field.mask]
        return Reply(values)

    def modify_ev_profile(self, profile_id: int, mask: int, *values: int) -> Reply:
        if len(values) < 7:
            raise MessageError(f"modify_ev_profile with {len(values)} attributes")
        state, current_state, mode, fmt_id, ev_count, min_active, event_mask = (
            _attribute(mask, bit, value) for bit, value in enumerate(values[:7])
        )
        controller, subject = self._controller, f"EV profile {profile_id}"
        _check_state(subject, controller.query_ev_profile(profile_id).state or INIT, current_state)
        attr = EvProfileAttr(
            state=_state(subject, state),
            mode=None if mode is None else choice(f"{subject}: mode", mode, EvMode),
            ev_fmt_profile_id=fmt_id,
            ev_count=ev_count,
            ev_min_active=min_active,
            ev_event_mask=None if event_mask is None else flags(f"{subject}: ev_event_mask", event_mask, EvStateMask),
            fields=_attribute(mask, 8, [_field(*part) for part in _parts(values[7:], FIELD_VALUES)]),
        )
        controller.modify_ev_profile(profile_id, attr)
        return Reply()

    def ev_op(self, profile_id: int, operation: int, total: int, *values: int) -> Reply:
        controller = self._controller
        if total > MAX_OP_ENTRIES:
            raise VerbsError(f"ev_op: {total} entries: at most {MAX_OP_ENTRIES} a call", errno.E2BIG)
        if operation >= len(_EV_OPS):
            raise VerbsError(f"ev_op: no operation {operation} on entries")
        width, entries, refusal = self._width(profile_id), [], None
        # What comes before an entry that cannot be is carried out, as before any other that fails.
        for part in _parts(values, EV_ENTRY_VALUES):
            try:
                entries.append(_op_entry(part, width))
            except VerbsError as error:
                refusal = error
                break
        controller.ev_op(profile_id, _EV_OPS[operation], entries)
        if refusal is not None:
            raise refusal
        return Reply([int(entry.state) for entry in entries])

    def query_evs(self, profile_id: int, first: int) -> Reply:
        width = self._width(profile_id)
        if not first:
            self._evs = self._controller.ev_op(profile_id, EvOp.QUERY_ARRAY)
        values = [len(self._evs)]
        for entry in self._evs[first : first + (MAX_VALUES - 1) // EV_VALUES]:
            values += [*_left_aligned(entry.ev.val, width), entry.ev.port | entry.state << 32]
        return Reply(values)

    def _width(self, profile_id: int) -> int:
        """Return the bits of a profile's EVs. Raises VerbsError."""
        attr = self._controller.query_ev_profile(profile_id)
        if attr.mode is None:
            raise VerbsError(f"EV profile {profile_id} has no EVs, as it is in INIT", errno.ENOENT)
        if attr.mode is EvMode.AUTO:
            return _AUTO_WIDTH
        form = self._controller.query_ev_fmt_profile(attr.ev_fmt_profile_id or 0)
        if form.state is not ONLINE:
            raise VerbsError(
                f"EV profile {profile_id}: its EV format profile {attr.ev_fmt_profile_id} is {form.state.name}, "
                "needs ONLINE"
            )
        return packed_width(attr.fields) if attr.fields else sum(form.fields)

    # ---- profiles of congestion control ---------------------------------------------------------------------

    def query_cc_profile(self, profile_id: int) -> Reply:
        state, profile = self._controller.query_cc_profile(profile_id)
        has_config = profile.eta is not None
        values = [_STATES.index(state), int(has_config), *_name_values(profile.algorithm)]
        return Reply(values + (_config_values(profile) if has_config else [0] * CC_VALUES))

    def modify_cc_profile(self, profile_id: int, mask: int, state: int, current_state: int, *values: int) -> Reply:
        if len(values) != NAME_VALUES + CC_VALUES:
            raise MessageError(f"modify_cc_profile with {len(values)} values")
        controller, subject = self._controller, f"CC profile {profile_id}"
        _check_state(subject, controller.query_cc_profile(profile_id)[0], _attribute(mask, 1, current_state))
        config = _attribute(mask, 3, _config(values[NAME_VALUES:])) or {}
        controller.modify_cc_profile(
            profile_id,
            state=_state(subject, _attribute(mask, 0, state)),
            algorithm=_attribute(mask, 2, _name(values[:NAME_VALUES])) if mask & 1 << 2 else ...,
            **config,
        )
        return Reply()

    # ---- EV events ------------------------------------------------------------------------------------------

    def create_ev_event_cq(self, entries: int, channel: CompletionChannel | None) -> EvEventCq:
        """Create a queue of EV events; the program has its ring and number."""
        return self._controller.create_ev_event_cq(entries, channel=channel)

    def write_events(self, cq: EvEventCq, ring: CompletionRing) -> None:
        """Move events to a program's ring, as far as it has room; the rest coalesces meanwhile.

        Raises RingError.
        """
        for event in cq.poll(ring.room()):
            # An event may be older than the end of its profile, and then its EV means nothing any more.
            with suppress(VerbsError):
                ev = _left_aligned(event.ev.val, self._width(event.profile_id))
                ring.write(event.profile_id, *ev, event.ev.port, int(event.state), min(event.drop_count, _U32))
        ring.publish()

    # ---- endpoint operations --------------------------------------------------------------------------------

    def ep_add(self, number: int, *values: int) -> Reply:
        gids = {gid_halves(gid): gid for gid in self._controller.context.driver.gids()}
        if number not in self._unsent and number:
            raise VerbsError(f"ep_batch_send_wait: this program has no batch {number}", errno.ENOENT)
        if not number and len(self._unsent) + len(self._in_flight) >= MAX_BATCHES:
            raise VerbsError(f"ep_batch_send_wait: {MAX_BATCHES} batches are in flight, the limit", errno.EAGAIN)
        # A batch that cannot be whole is forgotten.
        requests = self._unsent.pop(number, [])
        requests += [_request(part, gids) for part in _parts(values, EP_VALUES)]
        if len(requests) > MAX_BATCH_REQUESTS:
            raise VerbsError(f"ep_batch_send_wait: at most {MAX_BATCH_REQUESTS} requests in a batch", errno.ENOMEM)
        number = number or next(self._numbers)
        self._unsent[number] = requests
        return Reply([number])

    def ep_send(self, number: int, operation: int, dscp: int, timeout_ns: int) -> Reply:
        requests = self._unsent.pop(number, None)
        if requests is None:
            raise VerbsError(f"ep_batch_send_wait: this program has no batch {number}", errno.ENOENT)
        kind = choice("ep_batch_send_wait: type", operation, EpOp)
        batch = self._controller.post_ep_op(requests, op=kind, dscp=dscp, timeout_ns=timeout_ns)
        nic_end, program_end = event_socket()
        self._in_flight[nic_end] = batch
        return Reply((), [program_end], [program_end])

    def deliver(self) -> None:
        """Send the outcome of each batch that is over."""
        for nic_end, batch in list(self._in_flight.items()):
            if not batch.done:
                continue
            del self._in_flight[nic_end]
            came = [response for response in batch.responses.values() if response.ok]
            parts = [
                EP_RESPONSE.pack(response.req_id, response.port, min(response.rtt_ns or 0, _U32), response.adj_svc_time)
                for response in came
            ]
            with nic_end, suppress(OSError):  # a program that does not wait any more
                nic_end.sendmsg([EP_COUNT.pack(len(came)), *parts], (), socket.MSG_NOSIGNAL)


def _attribute(mask: int, bit: int, value: T) -> T | None:
    """Return a value whose bit in the mask is set, None otherwise."""
    return value if mask >> bit & 1 else None


def _state(subject: str, number: int | None) -> ProfileState | None:
    """Return a profile's state by its number in C."""
    if number is None:
        return None
    if number >= len(_STATES):
        raise VerbsError(f"{subject}: no state {number}: must be 0 (INIT), 1 (OFFLINE) or 2 (ONLINE)")
    return _STATES[number]


def _check_state(subject: str, state: ProfileState, current_state: int | None) -> None:
    """Check that a profile is in the state that the program says. Raises VerbsError."""
    if current_state is not None and state is not _state(subject, current_state):
        raise VerbsError(f"{subject} is {state.name}: cur_profile_state says otherwise")


def _parts(values: Sequence[int], size: int) -> list[Sequence[int]]:
    """Return the parts of a list of records. Raises MessageError where the last is not whole."""
    if len(values) % size:
        raise MessageError(f"{len(values)} values of records that have {size} each")
    return [values[start : start + size] for start in range(0, len(values), size)]


def _left_aligned(ev: int, width: int) -> tuple[int, int]:
    """Return an EV of so many bits as two values."""
    return halves(ev << _EV_BITS - width)


def _right_aligned(high: int, low: int, width: int, subject: str) -> int:
    """Return the first bits of two values as a number. Raises VerbsError where there are more."""
    number, spare = high << 64 | low, _EV_BITS - width
    if number & (1 << spare) - 1:
        raise VerbsError(f"{subject} {high:016x}{low:016x} has bits behind its first {width}, which are all it has")
    return number >> spare


def _op_entry(part: Sequence[int], width: int) -> EvOpEntry:
    ev_high, ev_low, new_high, new_low, ports, state = part
    entry_flags = ports >> 32
    if entry_flags & ~_ALL_COPIES:
        raise VerbsError(f"ev_op: flags {entry_flags:#x}: must be 0 or MRC_CTL_EV_OP_F_ALL_COPIES")
    return EvOpEntry(
        EvEntry(_right_aligned(ev_high, ev_low, width, "EV"), ports & 0xFF),
        EvEntry(_right_aligned(new_high, new_low, width, "new EV"), ports >> 8 & 0xFF),
        EvStateMask(state),
        bool(entry_flags & _ALL_COPIES),
    )


def _field(widths: int, limits: int, mask: int) -> EvField:
    return EvField(widths & _U32, widths >> 32, limits & _U32, limits >> 32, mask)


def _request(part: Sequence[int], gids: dict[tuple[int, int], str]) -> EpRequest:
    """Return an endpoint request; `gids`: our addresses. Raises VerbsError."""
    head, sgid_high, sgid_low, dgid_high, dgid_low, ev_high, ev_low = part
    subject = f"ep_batch_send_wait, request {head & 0xFFFF}"
    form = choice(f"{subject}: ev_fmt_mode", head >> 32, EvFormat)
    sgid = gids.get((sgid_high, sgid_low), gid_text(sgid_high, sgid_low)) if sgid_high or sgid_low else None
    return EpRequest(
        head & 0xFFFF,
        gid_text(dgid_high, dgid_low),
        _right_aligned(ev_high, ev_low, MAX_WIDTH[form], f"{subject}: EV"),
        head >> 16 & 0xFF,
        sgid,
        form,
    )


def _name_values(name: str | None) -> tuple[int, ...]:
    return _NAME.unpack((name or "").encode().ljust(_NAME.size, b"\0"))


def _name(values: Sequence[int]) -> str | None:
    """Inverse of `_name_values`."""
    return _NAME.pack(*values).rstrip(b"\0").decode("ascii", "replace") or None


def _config(values: Sequence[int]) -> dict[str, float | bool | None]:
    """Return the configuration of congestion control under CcProfile's names."""
    config: dict[str, float | bool | None] = {}
    for name, value in zip(_CC_FIELDS, values, strict=True):
        if name in _FLOAT_FIELDS:
            config[name] = _FLOAT.unpack(_FLOAT_BITS.pack(value & _U32))[0]
        else:
            config[name] = None if not value and name in _DERIVED_AT_ZERO else value
    config["disable_qa"] = bool(config["disable_qa"])
    if config["qa_threshold"] == _U32:
        config["qa_threshold"] = QA_THRESHOLD_OFF
    return config


def _config_values(profile: CcProfile) -> list[int]:
    """Inverse of `_config`."""
    values = []
    for name in _CC_FIELDS:
        value = getattr(profile, name) or 0
        is_float = name in _FLOAT_FIELDS
        values.append(_FLOAT_BITS.unpack(_FLOAT.pack(value))[0] if is_float else min(int(value), _U32))
    return values
