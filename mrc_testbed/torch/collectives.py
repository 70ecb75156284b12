"""Collectives of a group of ranks, made of messages between pairs.

Every rank sends to every other directly: a fabric that sprays has no path to save, and each byte crosses it once.
Reductions add in the order of ranks, so all ranks get the same bits, whatever arrives first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

from mrc_testbed.torch.messenger import MessageRequest, Messenger, MessengerError

DIRECT_BYTES = 32 * 1024
"""Size up to which all_reduce sends whole tensors to all: one exchange in place of two."""
TAGS = 1 << 62
"""Tags that messages of send and recv may have."""
_COLLECTIVE = 1 << 63
"""Bit of the tags of collectives, so that no message of send and recv is taken for one."""
_MONITOR_BIT = 1 << 62
"""Bit of the tags of monitored barriers, which do not wait for collectives."""

Reduce = Callable[[torch.Tensor, torch.Tensor], object]

_REDUCE: dict[Any, Reduce] = {
    ReduceOp.SUM: torch.Tensor.add_,
    ReduceOp.AVG: torch.Tensor.add_,
    ReduceOp.PRODUCT: torch.Tensor.mul_,
    ReduceOp.MIN: lambda total, part: torch.minimum(total, part, out=total),
    ReduceOp.MAX: lambda total, part: torch.maximum(total, part, out=total),
    ReduceOp.BAND: torch.Tensor.bitwise_and_,
    ReduceOp.BOR: torch.Tensor.bitwise_or_,
    ReduceOp.BXOR: torch.Tensor.bitwise_xor_,
}


def reduction(op: Any) -> Reduce:
    """Return the function that reduces a part into a total.

    Raises ValueError for an unknown operation.
    """
    kind = op.op if hasattr(op, "op") else op
    for reduce_op, function in _REDUCE.items():
        if reduce_op == kind:
            return function
    names = ", ".join(reduce_op.name for reduce_op in _REDUCE)
    raise ValueError(f"the reduction {op} is not in mrc, which has {names}")


class Collectives:
    """Collectives over one messenger, one after the other. Tensors are contiguous, on the CPU.

    Raises MessengerError when a rank is lost, or does not answer in the time-out of the collective.
    """

    def __init__(self, messenger: Messenger) -> None:
        self._messenger = messenger
        self.rank, self.ranks = messenger.rank, messenger.ranks
        self._count, self._timeout_s = 0, 0.0

    def begin(self, timeout_s: float) -> None:
        """Begin the next collective: its messages have a tag of their own."""
        self._count += 1
        self._timeout_s = timeout_s

    def _exchange(self, sends: dict[int, torch.Tensor], receives: dict[int, torch.Tensor]) -> None:
        """Send a tensor to some ranks, and receive one from some; return when all is done."""
        messenger, tag = self._messenger, _COLLECTIVE | self._count
        # Each rank begins with its next one: else all would send to rank 0 first.
        requests: list[MessageRequest] = []
        for distance in range(1, self.ranks):
            target, source = (self.rank + distance) % self.ranks, (self.rank - distance) % self.ranks
            if (tensor := receives.get(source)) is not None:
                requests.append(messenger.receive(source, tag, tensor.data_ptr(), tensor.nbytes))
            if (tensor := sends.get(target)) is not None:
                requests.append(messenger.send(target, tag, tensor.data_ptr(), tensor.nbytes))
        failure: MessengerError | None = None
        for request in requests:  # each must be waited for: until then its bytes may be written
            try:
                request.wait(self._timeout_s if failure is None else 0.0)
            except MessengerError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _peers(self) -> list[int]:
        return [rank for rank in range(self.ranks) if rank != self.rank]

    def barrier(self) -> None:
        empty = torch.empty(0)
        self._exchange(dict.fromkeys(self._peers(), empty), dict.fromkeys(self._peers(), empty))

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Send down a binomial tree: no rank sends more than log2(ranks) copies."""
        distance = (self.rank - root) % self.ranks
        step = 1
        while step < self.ranks:
            if distance < step:
                if distance + step < self.ranks:
                    self._exchange({(self.rank + step) % self.ranks: tensor}, {})
            elif distance < 2 * step:
                self._exchange({}, {(self.rank - step) % self.ranks: tensor})
            step *= 2

    def all_gather(self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor) -> None:
        """Fill `outputs[r]` with the tensor of rank r."""
        outputs[self.rank].copy_(tensor)
        self._exchange(dict.fromkeys(self._peers(), tensor), {rank: outputs[rank] for rank in self._peers()})

    def all_to_all(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        """Fill `outputs[r]` with what rank r has for us, and send it `inputs[r]`."""
        outputs[self.rank].copy_(inputs[self.rank])
        self._exchange({r: inputs[r] for r in self._peers()}, {r: outputs[r] for r in self._peers()})

    def gather(self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, root: int) -> None:
        """Fill `outputs[r]` at the root with the tensor of rank r."""
        if self.rank == root:
            outputs[root].copy_(tensor)
            self._exchange({}, {rank: outputs[rank] for rank in self._peers()})
        else:
            self._exchange({root: tensor}, {})

    def scatter(self, tensor: torch.Tensor, inputs: Sequence[torch.Tensor], root: int) -> None:
        """Send `inputs[r]` of the root to rank r."""
        if self.rank == root:
            tensor.copy_(inputs[root])
            self._exchange({rank: inputs[rank] for rank in self._peers()}, {})
        else:
            self._exchange({}, {root: tensor})

    def reduce_scatter(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], op: Any) -> None:
        """Reduce the `inputs[r]` of all ranks into the output of rank r."""
        parts = [inputs[r] if r == self.rank else torch.empty_like(output) for r in range(self.ranks)]
        self._exchange({r: inputs[r] for r in self._peers()}, {r: parts[r] for r in self._peers()})
        self._reduce(output, parts, op)

    def all_reduce(self, tensor: torch.Tensor, op: Any) -> None:
        """Reduce a tensor of all ranks: small ones whole, large ones by a share of each rank."""
        flat = tensor.view(-1)
        if tensor.nbytes <= DIRECT_BYTES:
            parts = [flat.clone() if r == self.rank else torch.empty_like(flat) for r in range(self.ranks)]
            self._exchange(dict.fromkeys(self._peers(), parts[self.rank]), {r: parts[r] for r in self._peers()})
            self._reduce(flat, parts, op)
            return
        shares = list(flat.tensor_split(self.ranks))
        own_share = torch.empty_like(shares[self.rank])
        self.reduce_scatter(own_share, shares, op)
        self.all_gather(shares, own_share)

    def all_reduce_sparse(self, tensor: torch.Tensor) -> None:
        """Add a sparse tensor of all ranks: each sends its indices and values to all."""
        own_part = tensor.coalesce()
        values = own_part.values().contiguous()
        counts = [torch.empty(1, dtype=torch.int64) for _ in range(self.ranks)]
        self.all_gather(counts, torch.tensor([own_part._nnz()]))
        all_indices = [torch.empty(own_part.sparse_dim(), int(count), dtype=torch.int64) for count in counts]
        all_values = [values.new_empty(int(count), *values.shape[1:]) for count in counts]
        self.all_gather(all_indices, own_part.indices().contiguous())
        self.all_gather(all_values, values)
        total = torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values), tensor.shape)
        with torch.no_grad():
            tensor.copy_(total.coalesce())

    def reduce(self, tensor: torch.Tensor, root: int, op: Any) -> None:
        """Reduce a tensor of all ranks at the root; that of others stays as it is."""
        parts = [tensor.clone() if r == self.rank else torch.empty_like(tensor) for r in range(self.ranks)]
        if self.rank == root:
            self._exchange({}, {rank: parts[rank] for rank in self._peers()})
            self._reduce(tensor, parts, op)
        else:
            self._exchange({root: tensor}, {})

    def _reduce(self, output: torch.Tensor, parts: Sequence[torch.Tensor], op: Any) -> None:
        function = reduction(op)
        output.copy_(parts[0])
        for part in parts[1:]:
            function(output, part)
        if op == ReduceOp.AVG:
            output.div_(self.ranks) if output.is_floating_point() else output.floor_divide_(self.ranks)


def monitored_barrier(messenger: Messenger, count: int, timeout_s: float, wait_all_ranks: bool) -> None:
    """Wait until rank 0 has heard of all ranks.

    Raises MessengerError in PyTorch's words, with the ranks that did not come.
    `count`: number of barriers before; `wait_all_ranks`: name all ranks that did not come, not the first alone.
    """
    tag, end, milliseconds = _MONITOR_BIT | count, time.monotonic() + timeout_s, round(timeout_s * 1000)
    if messenger.rank:
        try:
            messenger.send(0, tag, 0, 0).wait(timeout_s)
            messenger.receive(0, tag, 0, 0).wait(timeout_s)
        except MessengerError as error:
            raise MessengerError(
                f"Rank {messenger.rank} successfully reached monitoredBarrier, but received errors while waiting for "
                f"send/recv from rank 0: {error}"
            ) from error
        return
    # Rank 0 waits for all until one time, and answers when the last has come.
    missing_ranks: list[int] = []
    for rank, request in [(rank, messenger.receive(rank, tag, 0, 0)) for rank in range(1, messenger.ranks)]:
        is_first = not missing_ranks
        try:
            request.wait(max(0.0, end - time.monotonic()) if is_first or wait_all_ranks else 0.0)
        except MessengerError:
            missing_ranks.append(rank)
    if missing_ranks and not timeout_s:
        raise MessengerError(f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms")
    if missing_ranks:
        named_ranks = missing_ranks if wait_all_ranks else missing_ranks[:1]
        ranks = f"Rank{'s' if len(named_ranks) > 1 else ''} {', '.join(map(str, named_ranks))}"
        raise MessengerError(f"{ranks} failed to pass monitoredBarrier in {milliseconds} ms")
    for request in [messenger.send(rank, tag, 0, 0) for rank in range(1, messenger.ranks)]:
        request.wait(timeout_s)
