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
            own = collective.group.index(script.rank)
            made = make(
                collective.kind,
                rank=own,
                ranks=len(collective.group),
                size_bytes=collective.size,
                seed=input_key(collective.kind, seed, collective.key, len(collective.group)),
                options=msgspec.structs.replace(collective.options, drawn_by=seed + 1),
            )
            self._collectives.append(made)
            self.regions |= {f"{name}.{collective.key}": array for name, array in made.regions.items()}
        order = sorted(range(len(script.collectives)), key=lambda at: script.collectives[at].base)
        self._by_base = [(script.collectives[at].base, at) for at in order]
        self._bases = [base for base, _ in self._by_base]
        self._task_of = {task.collective: at for at, task in enumerate(script.tasks) if isinstance(task, JoinTask)}
        self._incoming = {(one.peer, one.number): one for one in script.incoming}
        self._receives = {
            (task.peer, task.number): at for at, task in enumerate(script.tasks) if isinstance(task, ReceiveTask)
        }
        self._after: list[list[int]] = [[] for _ in script.tasks]
        self._once_begun: list[list[int]] = [[] for _ in script.tasks]
        for at, task in enumerate(script.tasks):
            for other in task.after:
                self._after[other].append(at)
            for other in task.once_begun:
                self._once_begun[other].append(at)
        self._waits: list[int] = []
        self._left = 0
        self._wrong = 0
        self._here: set[tuple[int, int]] = set()
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
        """Begin a step. Raises CollectiveError while the one before is not done."""
        early = {(peer, step) for at, peer, step in self._early if at == iteration}
        self._early = [one for one in self._early if one[0] != iteration]
        self._here = early
        return super().start(iteration)

    def _begin(self) -> list[Send]:
        tasks = self.script.tasks
        self._left = len(tasks)
        self._waits = [len(task.after) + len(task.once_begun) for task in tasks]
        self._lanes.clear()
        self.done = not tasks
        self._begin_tasks([at for at, waits in enumerate(self._waits) if not waits])
        return self._take()

    def arrived(self, peer: int, step: int, iteration: int | None = None) -> list[Send]:
        """A write of `peer` with that number is here. One of a later step waits until that begins."""
        at_step = self.iteration if iteration is None else iteration
        incoming = self._incoming.get((peer, step))
        if incoming is None:
            return self._collective_arrived(peer, step, at_step)
        self._wrong += self._wrong_message(incoming, at_step)
        if at_step != self.iteration or self.done:
            self._early.append((at_step, peer, step))
            return []
        self._here.add((peer, step))
        at = self._receives[peer, step]
        if not self._waits[at]:
            self._end_tasks([at])
        return self._take()

    def _arrived(self, peer: int, step: int) -> list[Send]:
        return self.arrived(peer, step)

    def elapsed(self, task: int) -> list[Send]:
        """A computation is over."""
        doing = self.script.tasks[task]
        assert isinstance(doing, ComputeTask)
        lane = self._lanes[doing.lane]
        lane.popleft()
        if lane:
            self._ask_for_timer(lane[0])
        else:
            del self._lanes[doing.lane]
        self._end_tasks([task])
        return self._take()

    def sent(self, send: Send) -> list[Send]:
        """A write of ours has completed."""
        task = self._sending.pop((send.peer, send.step), None)
        if task is not None:
            self._end_tasks([task])
        return self._take()

    def wrong(self) -> int:
        """Elements of messages and of results that were wrong since it was asked last."""
        found, self._wrong = self._wrong, 0
        return found

    # ---- tasks --------------------------------------------------------------------------------------------

    def _begin_tasks(self, ready: list[int]) -> None:
        """Begin tasks that wait for nothing any more, and all that follows at once. A loop: chains may be long."""
        queue = deque(ready)
        while queue:
            at = queue.popleft()
            ended = self._begin_task(at)
            queue += self._release(self._once_begun[at])
            if ended:
                queue += self._ended(at)

    def _end_tasks(self, ended: list[int]) -> None:
        ready: list[int] = []
        for at in ended:
            ready += self._ended(at)
        self._begin_tasks(ready)

    def _ended(self, at: int) -> list[int]:
        self._left -= 1
        self.done = not self._left
        return self._release(self._after[at])

    def _release(self, followers: list[int]) -> list[int]:
        """Those of `followers` that wait for nothing any more."""
        free = []
        for follower in followers:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                free.append(follower)
        return free

    def _begin_task(self, at: int) -> bool:
        """Begin one task; whether it has ended at once."""
        task = self.script.tasks[at]
        if isinstance(task, ComputeTask):
            if task.seconds <= 0:
                return True
            lane = self._lanes.setdefault(task.lane, deque())
            lane.append(at)
            if len(lane) == 1:
                self._ask_for_timer(at)
            return False
        if isinstance(task, SendTask):
            data = self.regions[OUTBOX][task.start : task.start + task.elements]
            _fill_message(data, self._key(self.rank, task.number, self.iteration))
            self._sends.append(Send(task.peer, task.number, OUTBOX, task.start, task.elements, INBOX, task.at))
            self._sending[task.peer, task.number] = at
            return False
        if isinstance(task, ReceiveTask):
            return (task.peer, task.number) in self._here
        return self._join(task.collective)

    def _ask_for_timer(self, at: int) -> None:
        task = self.script.tasks[at]
        assert isinstance(task, ComputeTask)
        self.timers.append((task.seconds, at))

    def _take(self) -> list[Send]:
        """What to send now."""
        sends, self._sends = self._sends, []
        return sends

    # ---- messages -----------------------------------------------------------------------------------------

    def _key(self, source: int, number: int, iteration: int) -> int:
        return input_key(f"{self.kind}/{number}", self.seed, iteration, source)

    def _wrong_message(self, one: Incoming, iteration: int) -> int:
        found = self.regions[INBOX][one.at : one.at + one.elements]
        key = self._key(one.peer, one.number, iteration)
        return sum(
            count_unequal(piece := found[at : at + PIECE], hashes(key, at, len(piece)))
            for at in range(0, len(found), PIECE)
        )

    # ---- collectives --------------------------------------------------------------------------------------

    def _join(self, at: int) -> bool:
        rank = self._collectives[at]
        self._pass_on(at, rank.start(self.iteration))
        return self._over(at)

    def _collective_arrived(self, peer: int, step: int, iteration: int) -> list[Send]:
        place = bisect_right(self._bases, step) - 1
        at = self._by_base[place][1] if place >= 0 else -1
        one = self.script.collectives[at] if at >= 0 else None
        known = one is not None and peer != self.rank and peer in one.group
        if one is None or not known or step - one.base >= steps_of(one.kind, len(one.group)):
            raise CollectiveError(f"rank {self.rank}: write {step} of rank {peer} belongs to nothing that it runs")
        rank = self._collectives[at]
        running = not rank.done and iteration == rank.iteration
        self._pass_on(at, rank.arrived(one.group.index(peer), step - one.base, iteration))
        if running and self._over(at):
            self._end_tasks([self._task_of[at]])
        return self._take()

    def _over(self, at: int) -> bool:
        rank = self._collectives[at]
        if rank.done:
            self._wrong += rank.wrong()
        return rank.done

    def _pass_on(self, at: int, sends: list[Send]) -> None:
        """Sends of a collective as ours."""
        one = self.script.collectives[at]
        for send in sends:
            self._sends.append(
                Send(
                    one.group[send.peer],
                    one.base + send.step,
                    f"{send.region}.{one.key}",
                    send.start,
                    send.count,
                    f"{send.to_region}.{one.key}",
                    send.at,
                )
            )


def _check(script: RankScript) -> None:
    """Places, numbers and partners of a script from elsewhere. Raises CollectiveError."""

    def inside(what: str, value: int, end: int) -> None:
        if not 0 <= value <= end:
            raise CollectiveError(f"script: {what} {value}: 0 to {end}")

    for what in ("outbox", "inbox"):
        inside(what, getattr(script, what), MEMORY_MAX // ELEMENT.itemsize)
    if not 0 <= script.rank < script.ranks:
        raise CollectiveError(f"script: rank {script.rank} of {script.ranks}")
    for at, task in enumerate(script.tasks):
        for other in (*task.after, *task.once_begun):
            if not 0 <= other < len(script.tasks):
                raise CollectiveError(f"script: task {at} waits for task {other}, which is not there")
        if isinstance(task, SendTask):
            inside(f"start of task {at}", task.start, script.outbox - task.elements)
        elif isinstance(task, JoinTask):
            inside(f"collective of task {at}", task.collective, len(script.collectives) - 1)
    for one in script.incoming:
        inside("place of a message", one.at, script.inbox - one.elements)
    if any(script.rank not in collective.group for collective in script.collectives):
        raise CollectiveError("script: a collective without its own rank")
    coming = {(one.peer, one.number) for one in script.incoming}
    if coming != {(task.peer, task.number) for task in script.tasks if isinstance(task, ReceiveTask)}:
        raise CollectiveError("script: messages that come, and tasks that receive them, are not the same")


def _fill_message(array: np.ndarray, key: int) -> None:
    for at in range(0, len(array), PIECE):
        piece = array[at : at + PIECE]
        piece[:] = hashes(key, at, len(piece))
