"""Digests for a controller: batched into lists, each datum once until its list is acknowledged.

The rules are those of the P4Runtime specification's DigestEntry, per digest:

* Without an entry nothing is sent.
* A list is sent when it holds `max_list_size` data, or when its oldest datum is `max_timeout_ns` old; at once when
  the timeout is 0. A size of 0 is our own bound (LIST_MAX).
* A datum equal to one that was sent and not acknowledged yet is dropped, for `ack_timeout_ns` after its list was sent.
  With a timeout of 0 nothing is remembered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from finsy.proto import p4i, p4r, rpc_code

from mrc_testbed.switch.device.entities import Digest
from mrc_testbed.switch.device.p4data import NONE_TRANSLATED, TypeBits, p4_data
from mrc_testbed.switch.server.p4runtime.errors import RpcError

LIST_MAX = 1024
"""Data in one list, when the entry sets no bound."""
REMEMBERED_MAX = 65536
"""Data of one digest waiting for an acknowledgement; beyond it the oldest list counts as acknowledged."""


class Timers(Protocol):
    """Asyncio loop as it is used here."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> object: ...


@dataclass(slots=True)
class _Learner:
    """One configured digest."""

    spec: p4i.Digest
    config: p4r.DigestEntry.Config
    waiting: list[bytes] = field(default_factory=list)
    """Data of the list being gathered."""
    known_data: set[bytes] = field(default_factory=set)
    """Data not to be sent again: waiting, or sent and not acknowledged."""
    sent: dict[int, list[bytes]] = field(default_factory=dict)
    """Lists not acknowledged yet, by list id, oldest first."""
    round: int = 0
    """Counts the lists sent: tells a timer whether its list is still the one being gathered."""


@dataclass(frozen=True, slots=True)
class KeptLearner:
    """State of a digest before a change, to restore it.

    It holds the same object, since its timers refer to it, and all that the change replaces.
    """

    learner: _Learner
    config: p4r.DigestEntry.Config
    known_data: set[bytes]
    sent: dict[int, list[bytes]]


class Digests:
    """The digests of one device and one program. Used on the asyncio loop only.

    `send` gives a list to the primary controllers and says whether there was any; `timers` is the running loop.
    """

    def __init__(
        self,
        info: p4i.P4Info,
        send: Callable[[p4r.StreamMessageResponse], bool],
        timers: Timers | None = None,
        type_bits: TypeBits = NONE_TRANSLATED,
    ) -> None:
        self._info = info
        self._type_bits = type_bits
        self._specs = {digest.preamble.id: digest for digest in info.digests}
        self._send = send
        self._timers = timers
        self._learners: dict[int, _Learner] = {}
        self._next_list = 1

    # ---- entries: raise RpcError

    def insert(self, entry: p4r.DigestEntry) -> None:
        """ALREADY_EXISTS, INVALID_ARGUMENT."""
        spec = self._spec(entry.digest_id)
        _check(entry)
        if entry.digest_id in self._learners:
            raise RpcError(rpc_code.ALREADY_EXISTS, f"digest {spec.preamble.name} is configured already: modify it")
        self._learners[entry.digest_id] = _Learner(spec, _copy(entry.config))

    def modify(self, entry: p4r.DigestEntry) -> None:
        """Change an entry; waiting data is sent under the old bounds. NOT_FOUND, INVALID_ARGUMENT."""
        learner = self._configured_learner(entry.digest_id)
        _check(entry)
        self._flush(learner)
        learner.config = _copy(entry.config)
        if not learner.config.ack_timeout_ns:
            learner.sent, learner.known_data = {}, set(learner.waiting)

    def delete(self, entry: p4r.DigestEntry) -> None:
        """NOT_FOUND."""
        self._configured_learner(entry.digest_id)
        del self._learners[entry.digest_id]

    def entries(self, digest_id: int) -> list[p4r.DigestEntry]:
        """The entry of a digest, or all when 0. Raises RpcError for a digest that the program does not have."""
        if digest_id:
            self._spec(digest_id)
        selected_ids = [learner for learner in self._learners if digest_id in (0, learner)]
        return [
            p4r.DigestEntry(digest_id=selected_id, config=self._learners[selected_id].config)
            for selected_id in selected_ids
        ]

    def saved_state(self, digest_id: int) -> KeptLearner | None:
        """State of a digest for `restore`, which takes a change back."""
        learner = self._learners.get(digest_id)
        return None if learner is None else KeptLearner(learner, learner.config, learner.known_data, learner.sent)

    def restore(self, digest_id: int, saved_state: KeptLearner | None) -> None:
        """Restore the entry as it was at `saved_state`, with its timers; lists that left meanwhile have left."""
        self._learners.pop(digest_id, None)
        if saved_state is not None:
            learner = self._learners[digest_id] = saved_state.learner
            learner.config, learner.known_data, learner.sent = (
                saved_state.config,
                saved_state.known_data,
                saved_state.sent,
            )

    def _spec(self, digest_id: int) -> p4i.Digest:
        spec = self._specs.get(digest_id)
        if spec is None:
            has = ", ".join(f"{number} {digest.preamble.name}" for number, digest in self._specs.items()) or "none"
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"no digest {digest_id} (has: {has})")
        return spec

    def _configured_learner(self, digest_id: int) -> _Learner:
        spec = self._spec(digest_id)
        if digest_id not in self._learners:
            raise RpcError(rpc_code.NOT_FOUND, f"digest {spec.preamble.name} is not configured: insert it first")
        return self._learners[digest_id]

    # ---- data

    def feed(self, data: list[Digest]) -> None:
        """Takes what the device sent."""
        for digest in data:
            learner = self._learners.get(digest.digest_id)
            if learner is None or digest.data in learner.known_data:
                continue
            config = learner.config
            learner.waiting.append(digest.data)
            if config.ack_timeout_ns:
                learner.known_data.add(digest.data)
            if config.max_timeout_ns == 0 or len(learner.waiting) >= (config.max_list_size or LIST_MAX):
                self._flush(learner)
            elif len(learner.waiting) == 1 and self._timers is not None:
                self._later(config.max_timeout_ns, self._overdue, learner, learner.round)

    def _later(self, delay_ns: int, act: Callable[[_Learner, int], None], learner: _Learner, argument: int) -> None:
        if self._timers is not None:
            self._timers.call_later(delay_ns / 1e9, lambda: act(learner, argument))

    def _overdue(self, learner: _Learner, round_number: int) -> None:
        """The first datum of the list has waited long enough, unless the list left meanwhile."""
        if learner.round == round_number and self._alive(learner):
            self._flush(learner)

    def _alive(self, learner: _Learner) -> bool:
        return self._learners.get(learner.spec.preamble.id) is learner

    def _flush(self, learner: _Learner) -> None:
        data, learner.waiting = learner.waiting, []
        learner.round += 1
        if not data:
            return
        list_id, self._next_list = self._next_list, self._next_list + 1
        message = p4r.DigestList(digest_id=learner.spec.preamble.id, list_id=list_id, timestamp=time.time_ns())
        message.data.extend(p4_data(learner.spec.type_spec, self._info, datum, self._type_bits) for datum in data)
        if not self._send(p4r.StreamMessageResponse(digest=message)):
            learner.known_data.difference_update(data)  # no client got it: send it again when it is seen again
            return
        if learner.config.ack_timeout_ns:
            learner.sent[list_id] = data
            self._later(learner.config.ack_timeout_ns, self._forget, learner, list_id)
            while sum(map(len, learner.sent.values())) > REMEMBERED_MAX:
                self._forget(learner, next(iter(learner.sent)))

    @staticmethod
    def _forget(learner: _Learner, list_id: int) -> None:
        learner.known_data.difference_update(learner.sent.pop(list_id, ()))

    def acknowledge(self, ack: p4r.DigestListAck) -> None:
        """The client has the list: its data may be sent again. One that is late says nothing new."""
        self._spec(ack.digest_id)
        learner = self._learners.get(ack.digest_id)
        if learner is not None:
            self._forget(learner, ack.list_id)


def _copy(config: p4r.DigestEntry.Config) -> p4r.DigestEntry.Config:
    out = p4r.DigestEntry.Config()
    out.CopyFrom(config)
    return out


def _check(entry: p4r.DigestEntry) -> None:
    config = entry.config
    for name in ("max_timeout_ns", "max_list_size", "ack_timeout_ns"):
        if getattr(config, name) < 0:
            raise RpcError(
                rpc_code.INVALID_ARGUMENT,
                f"digest {entry.digest_id}: {name} = {getattr(config, name)}: must not be < 0",
            )
