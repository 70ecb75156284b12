"""One rank of a Program: runs its script as a state machine, step after step. No clock, no socket.

    rank = ProgramRank(script, seed=7)
    driver = RankDriver(rank, iterations, clock, call_at)      # hosts/traffic/collective_rank.py

A task begins when all it waits for has ended (or begun). Computations ask for timers (`timers`), whose end the driver
tells by `elapsed`; a message ends with its completion (`sent`), or when it has arrived. Collectives are the machines of
collectives.py over their group. What arrives is compared with what has to be there at once, so that a sender that is
ahead may write the next step's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

import msgspec
import numpy as np

from mrc_testbed.hosts.traffic.collectives import (
    ELEMENT,
    PIECE,
    CollectiveError,
    Rank,
    Send,
    count_unequal,
    hashes,
    input_key,
    make,
    steps_of,
)
from mrc_testbed.hosts.traffic.program_script import (
    MEMORY_MAX,
    ComputeTask,
    Incoming,
    JoinTask,
    RankScript,
    ReceiveTask,
    SendTask,
)

INBOX, OUTBOX = "inbox", "outbox"


class ProgramRank(Rank):
    """See the module. Arrays are int32."""

    kind = "program"
    follows_sends = True

    def __init__(self, script: RankScript, seed: int) -> None:
        """Raises CollectiveError for a script that program_script.py cannot have made."""
        _check(script)
        super().__init__(script.rank, script.ranks, -(-script.sent_bytes // ELEMENT.itemsize), seed)
        self.script = script
        sizes = {OUTBOX: script.outbox, INBOX: script.inbox}
        self.regions = {name: np.zeros(size, ELEMENT) for name, size in sizes.items() if size}
        self._collectives: list[Rank] = []
        for collective in script.collectives:
            group_rank = collective.group.index(script.rank)
            group_machine = make(
                collective.kind,
                rank=group_rank,
                ranks=len(collective.group),
                size_bytes=collective.size,
                seed=input_key(collective.kind, seed, collective.key, len(collective.group)),
                options=msgspec.structs.replace(collective.options, drawn_by=seed + 1),
            )
            self._collectives.append(group_machine)
            self.regions |= {f"{name}.{collective.key}": array for name, array in group_machine.regions.items()}
        # Step numbers of a collective start at its base: bisection finds the collective of a step.
        order = sorted(range(len(script.collectives)), key=lambda index: script.collectives[index].base)
        self._by_base = [(script.collectives[index].base, index) for index in order]
        self._bases = [base for base, _ in self._by_base]
        self._task_of = {
            task.collective: index for index, task in enumerate(script.tasks) if isinstance(task, JoinTask)
        }
        self._incoming = {(incoming.peer, incoming.number): incoming for incoming in script.incoming}
        self._receives = {
            (task.peer, task.number): index for index, task in enumerate(script.tasks) if isinstance(task, ReceiveTask)
        }
        self._followers: list[list[int]] = [[] for _ in script.tasks]
        self._starters: list[list[int]] = [[] for _ in script.tasks]
        # A task waits for the end of some tasks (followers) and for the start of others (starters).
        for index, task in enumerate(script.tasks):
            for dependency in task.after:
                self._followers[dependency].append(index)
            for dependency in task.once_begun:
                self._starters[dependency].append(index)
        self._waits: list[int] = []
        self._open_tasks = 0
        self._wrong_count = 0
        self._arrived_writes: set[tuple[int, int]] = set()
        self._sending: dict[tuple[int, int], int] = {}
        self._lanes: dict[int, deque[int]] = {}
        self._sends: list[Send] = []

    @property
    def bus_factor(self) -> float:
        """1: its size is what it writes in a step."""
        return 1.0

    @property
    def computing(self) -> bool:
        """Some lane computes."""
        return bool(self._lanes)

    # ---- what the driver tells ----------------------------------------------------------------------------

    def start(self, iteration: int) -> list[Send]:
        """Start a step; raises CollectiveError while the one before is not done."""
        early_writes = {
            (peer, step) for step_iteration, peer, step in self._early_writes if step_iteration == iteration
        }
        self._early_writes = [write for write in self._early_writes if write[0] != iteration]
        self._arrived_writes = early_writes
        return super().start(iteration)

    def _begin(self) -> list[Send]:
        tasks = self.script.tasks
        self._open_tasks = len(tasks)
        self._waits = [len(task.after) + len(task.once_begun) for task in tasks]
        self._lanes.clear()
        self.done = not tasks
        self._begin_tasks([number for number, waits in enumerate(self._waits) if not waits])
        return self._take()

    def on_write(self, peer: int, step: int, iteration: int | None = None) -> list[Send]:
        """Take a write of `peer` with that number; one of a later step waits until that step starts."""
        at_step = self.iteration if iteration is None else iteration
        incoming = self._incoming.get((peer, step))
        if incoming is None:
            return self._collective_arrived(peer, step, at_step)
        self._wrong_count += self._wrong_message(incoming, at_step)
        if at_step != self.iteration or self.done:
            self._early_writes.append((at_step, peer, step))
            return []
        self._arrived_writes.add((peer, step))
        number = self._receives[peer, step]
        if not self._waits[number]:
            self._end_tasks([number])
        return self._take()

    def _on_write(self, peer: int, step: int) -> list[Send]:
        return self.on_write(peer, step)

    def on_timer(self, task: int) -> list[Send]:
        """End a computation."""
        computation = self.script.tasks[task]
        assert isinstance(computation, ComputeTask)
        lane = self._lanes[computation.lane]
        lane.popleft()
        if lane:
            self._ask_for_timer(lane[0])
        else:
            del self._lanes[computation.lane]
        self._end_tasks([task])
        return self._take()

    def sent(self, send: Send) -> list[Send]:
        """Take the completion of a write of ours."""
        task = self._sending.pop((send.peer, send.step), None)
        if task is not None:
            self._end_tasks([task])
        return self._take()

    def count_errors(self) -> int:
        """Elements of messages and of results that were wrong since it was asked last."""
        wrong_count, self._wrong_count = self._wrong_count, 0
        return wrong_count

    # ---- tasks --------------------------------------------------------------------------------------------

    def _begin_tasks(self, numbers: list[int]) -> None:
        """Start tasks that are ready, and all that become ready at once; a loop, for long chains."""
        queue = deque(numbers)
        while queue:
            number = queue.popleft()
            has_ended = self._begin_task(number)
            queue += self._release(self._starters[number])
            if has_ended:
                queue += self._end_task(number)

    def _end_tasks(self, ended_numbers: list[int]) -> None:
        ready_numbers: list[int] = []
        for number in ended_numbers:
            ready_numbers += self._end_task(number)
        self._begin_tasks(ready_numbers)

    def _end_task(self, number: int) -> list[int]:
        self._open_tasks -= 1
        self.done = not self._open_tasks
        return self._release(self._followers[number])

    def _release(self, followers: list[int]) -> list[int]:
        """Count one dependency off each follower; return those that are ready."""
        ready_numbers = []
        for follower in followers:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                ready_numbers.append(follower)
        return ready_numbers

    def _begin_task(self, number: int) -> bool:
        """Start one task; return whether it has ended at once."""
        task = self.script.tasks[number]
        if isinstance(task, ComputeTask):
            if task.seconds <= 0:
                return True
            lane = self._lanes.setdefault(task.lane, deque())
            lane.append(number)
            if len(lane) == 1:
                self._ask_for_timer(number)
            return False
        if isinstance(task, SendTask):
            data = self.regions[OUTBOX][task.start : task.start + task.elements]
            _fill_message(data, self._key(self.rank, task.number, self.iteration))
            self._sends.append(Send(task.peer, task.number, OUTBOX, task.start, task.elements, INBOX, task.inbox_start))
            self._sending[task.peer, task.number] = number
            return False
        if isinstance(task, ReceiveTask):
            return (task.peer, task.number) in self._arrived_writes
        return self._join(task.collective)

    def _ask_for_timer(self, number: int) -> None:
        task = self.script.tasks[number]
        assert isinstance(task, ComputeTask)
        self.timers.append((task.seconds, number))

    def _take(self) -> list[Send]:
        """Return what to send now."""
        sends, self._sends = self._sends, []
        return sends

    # ---- messages -----------------------------------------------------------------------------------------

    def _key(self, source: int, number: int, iteration: int) -> int:
        return input_key(f"{self.kind}/{number}", self.seed, iteration, source)

    def _wrong_message(self, incoming: Incoming, iteration: int) -> int:
        message = self.regions[INBOX][incoming.inbox_start : incoming.inbox_start + incoming.elements]
        key = self._key(incoming.peer, incoming.number, iteration)
        return sum(
            count_unequal(piece := message[offset : offset + PIECE], hashes(key, offset, len(piece)))
            for offset in range(0, len(message), PIECE)
        )

    # ---- collectives --------------------------------------------------------------------------------------

    def _join(self, index: int) -> bool:
        rank = self._collectives[index]
        self._pass_on(index, rank.start(self.iteration))
        return self._end_collective(index)

    def _collective_arrived(self, peer: int, step: int, iteration: int) -> list[Send]:
        position = bisect_right(self._bases, step) - 1
        index = self._by_base[position][1] if position >= 0 else -1
        collective = self.script.collectives[index] if index >= 0 else None
        is_member = collective is not None and peer != self.rank and peer in collective.group
        if (
            collective is None
            or not is_member
            or step - collective.base >= steps_of(collective.kind, len(collective.group))
        ):
            raise CollectiveError(f"rank {self.rank}: write {step} of rank {peer} belongs to nothing that it runs")
        rank = self._collectives[index]
        running = not rank.done and iteration == rank.iteration
        self._pass_on(index, rank.on_write(collective.group.index(peer), step - collective.base, iteration))
        if running and self._end_collective(index):
            self._end_tasks([self._task_of[index]])
        return self._take()

    def _end_collective(self, index: int) -> bool:
        rank = self._collectives[index]
        if rank.done:
            self._wrong_count += rank.count_errors()
        return rank.done

    def _pass_on(self, index: int, sends: list[Send]) -> None:
        """Sends of a collective as ours."""
        collective = self.script.collectives[index]
        for send in sends:
            self._sends.append(
                Send(
                    collective.group[send.peer],
                    collective.base + send.step,
                    f"{send.region}.{collective.key}",
                    send.start,
                    send.count,
                    f"{send.to_region}.{collective.key}",
                    send.to_start,
                )
            )


def _check(script: RankScript) -> None:
    """Places, numbers and partners of a script from elsewhere. Raises CollectiveError."""

    def check_within(description: str, value: int, end: int) -> None:
        if not 0 <= value <= end:
            raise CollectiveError(f"script: {description} {value}: 0 to {end}")

    for description in ("outbox", "inbox"):
        check_within(description, getattr(script, description), MEMORY_MAX // ELEMENT.itemsize)
    if not 0 <= script.rank < script.ranks:
        raise CollectiveError(f"script: rank {script.rank} of {script.ranks}")
    for number, task in enumerate(script.tasks):
        for dependency in (*task.after, *task.once_begun):
            if not 0 <= dependency < len(script.tasks):
                raise CollectiveError(f"script: task {number} waits for task {dependency}, which is not there")
        if isinstance(task, SendTask):
            check_within(f"start of task {number}", task.start, script.outbox - task.elements)
        elif isinstance(task, JoinTask):
            check_within(f"collective of task {number}", task.collective, len(script.collectives) - 1)
    for incoming in script.incoming:
        check_within("place of a message", incoming.inbox_start, script.inbox - incoming.elements)
    if any(script.rank not in collective.group for collective in script.collectives):
        raise CollectiveError("script: a collective without its own rank")
    coming = {(incoming.peer, incoming.number) for incoming in script.incoming}
    if coming != {(task.peer, task.number) for task in script.tasks if isinstance(task, ReceiveTask)}:
        raise CollectiveError("script: messages that come, and tasks that receive them, are not the same")


def _fill_message(array: np.ndarray, key: int) -> None:
    for offset in range(0, len(array), PIECE):
        piece = array[offset : offset + PIECE]
        piece[:] = hashes(key, offset, len(piece))
