"""Traffic for a virtual fabric: streams of checked writes, permutations, incast with a victim.

    flow = Flow(fabric, "h0", "h2", message_bytes=1 << 20, messages=10)
    fabric.run_until(lambda: flow.done)
    assert flow.completed == 10 and flow.intact

A flow checks each message in the receiver's memory at the moment it completes at the sender, and that nothing else was
placed there. Rates are of payload, measured at the receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mrc_testbed.hosts.engine.events import Completion, Status
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes
from mrc_testbed.simulator.fabric import VirtualFabric
from mrc_testbed.simulator.message_slots import MessageSlots


class Flow:
    """Stream of writes of `message_bytes` from `a` to `b`, with `depth` of them outstanding.

    `messages`: number of writes in all; None: until `stop`.

    `start_s`: when, in virtual time; None = now. `options` go to VirtualFabric.connect.
    """

    def __init__(
        self,
        fabric: VirtualFabric,
        a: str,
        b: str,
        *,
        message_bytes: int = 1 << 16,
        messages: int | None = None,
        depth: int = 2,
        start_s: float | None = None,
        imm: bool = False,
        **options: Any,
    ) -> None:
        self.fabric, self.a, self.b = fabric, a, b
        self.message_bytes, self.messages, self.depth = message_bytes, messages, depth
        self.posted = self.completed = 0
        """Number of writes given to the QP, and of those that succeeded."""
        self.failures: list[Completion] = []
        self.corrupt: list[int] = []
        """Numbers of the messages whose bytes were not in place when they completed."""
        self.started_at: float | None = None
        self.finished_at: float | None = None
        """Time when the last write completed; None: not yet."""
        self.completed_at: list[float] = []
        self.on_done: Callable[[Flow], None] | None = None
        """Callback, called once after the last completion; not when a write failed."""
        self._imm = imm
        self._stopped = False
        self._bytes = MessageBytes(f"{fabric.seed}/{a}/{b}", message_bytes)
        configs = [options.get("config") or fabric.config_of(host) for host in (a, b)]
        self.memory = MessageSlots(self._bytes, depth, min(config.qp.pmtu_bytes for config in configs))
        self.memory.notify_twin(fabric.notify_twin(a, b, self.memory))
        self.region = fabric.host(b).endpoint.register(self.memory)
        self.qp, self.peer_qp = fabric.connect(a, b, **options)
        fabric.host(a).on_completion(self.qp.qpn, self._completed)
        fabric.host(a).schedule(fabric.now if start_s is None else start_s, self._start)

    # ---- running ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.started_at = self.fabric.now
        self._post()

    def stop(self) -> None:
        """Post no more messages; those posted still complete."""
        self._stopped = True

    def _post(self) -> None:
        ends = self._stopped or self.failures
        while not ends and self.posted - self.completed < self.depth and self.posted != self.messages:
            index = self.posted % self.depth
            self.memory.expect(index, self.posted)
            slot = index * self.message_bytes
            imm = self.posted & 0xFFFFFFFF if self._imm else None
            content, bytes_travel = self._bytes, self.fabric.wires is not None
            data: Any = content.part(self.posted) if bytes_travel else content.text_part(self.posted)
            self.qp.post_write(data, self.region.va + slot, self.region.rkey, now=self.fabric.now, imm=imm)
            self.posted += 1

    def _completed(self, completion: Completion) -> None:
        if completion.status is not Status.SUCCESS:
            self.failures.append(completion)
            return
        number = self.completed
        if not self.memory.finish(number % self.depth):
            self.corrupt.append(number)
        self.completed += 1
        self.completed_at.append(completion.at)
        self.finished_at = completion.at
        self._post()
        if self.on_done is not None and self.completed == self.posted and self.done:
            self.on_done(self)

    # ---- results ---------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the flow is over: all completed, QP failed, or stopped and drained."""
        is_ended = self.posted == self.messages or self._stopped or bool(self.failures)
        return self.started_at is not None and is_ended and not self.qp.outstanding()

    @property
    def intact(self) -> bool:
        """Whether every completed message was intact and no other bytes were placed in memory."""
        waiting = (self.posted - self.completed) * self.message_bytes
        return not self.corrupt and not self.memory.has_stray and self.memory.placed_bytes <= waiting

    @property
    def received_bytes(self) -> int:
        """Payload placed in the receiver's memory so far, each byte once."""
        return self.peer_qp.counters.bytes_received

    @property
    def duration_s(self) -> float:
        """Seconds from the start to the last completion so far."""
        return (self.finished_at or self.fabric.now) - (self.started_at or 0.0)

    @property
    def goodput_bps(self) -> float:
        """Completed payload over `duration_s`, bits/s."""
        return self.completed * self.message_bytes * 8 / self.duration_s if self.completed else 0.0


# ---- patterns ---------------------------------------------------------------------------------------------


def incast(fabric: VirtualFabric, sources: Sequence[str], target: str, **options: Any) -> list[Flow]:
    """Start one flow from each source to the same host. `options` as of Flow."""
    return [Flow(fabric, source, target, **options) for source in sources]


def permutation(fabric: VirtualFabric, **options: Any) -> list[Flow]:
    """Start one flow out of and one into every host, drawn by the fabric's rng; no host sends to itself."""
    names = [host.name for host in fabric.plan.hosts]
    targets = names[:]
    while any(a == b for a, b in zip(names, targets, strict=True)):
        fabric.rng.shuffle(targets)
    return [Flow(fabric, a, b, **options) for a, b in zip(names, targets, strict=True)]


def run_all(fabric: VirtualFabric, flows: Sequence[Flow], limit_s: float = 600.0) -> bool:
    """Run until every flow is done; False when the limit came first."""
    waiting = [flow for flow in flows if fabric.owns(flow.a)]

    def all_done() -> bool:
        # Asked after every event: flows that are done are not looked at again.
        while waiting and waiting[-1].done:
            waiting.pop()
        return not waiting

    return fabric.run_until(all_done, limit_s=limit_s)


def rates_bps(fabric: VirtualFabric, flows: Sequence[Flow], warm_up_s: float, seconds: float) -> list[float]:
    """Return the payload rate of each flow over an interval that begins `warm_up_s` from now."""
    fabric.run_for(warm_up_s)
    start_bytes = [flow.received_bytes for flow in flows]
    fabric.run_for(seconds)
    return [(flow.received_bytes - was) * 8 / seconds for flow, was in zip(flows, start_bytes, strict=True)]


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 = all equal, 1/n = one value has everything."""
    # A loop: in machine code sum() of a generator makes whole numbers only.
    total = squares = 0.0
    for value in values:
        total += value
        squares += value * value
    return total * total / (len(values) * squares) if squares else 1.0
