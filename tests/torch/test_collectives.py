"""Collectives of any number of ranks, on messengers in memory: order of messages, roots, sizes."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")

from torch.distributed import ReduceOp  # noqa: E402 - only where PyTorch is

from mrc_testbed.torch.collectives import DIRECT_BYTES, Collectives, reduction  # noqa: E402 - for it

PATIENCE_S = 20


class MemoryMessenger:
    """Messenger of one rank; messages go through queues by sender, receiver and tag."""

    def __init__(self, queues, ranks, rank):
        self._queues, self.ranks, self.rank = queues, ranks, rank

    def send(self, peer, tag, address, length):
        self._queues[self.rank, peer, tag].put(ctypes.string_at(address, length) if length else b"")
        return MemoryRequest(lambda: None)

    def receive(self, peer, tag, address, length):
        def take():
            message = self._queues[peer, self.rank, tag].get(timeout=PATIENCE_S)
            assert len(message) == length
            ctypes.memmove(address, message, length)

        return MemoryRequest(take)


class MemoryRequest:
    def __init__(self, take):
        self._take = take

    def wait(self, timeout_s):
        self._take()


class Queues(defaultdict):
    """Queue by key, made by whoever comes first."""

    def __init__(self):
        super().__init__(queue.SimpleQueue)
        self._lock = threading.Lock()

    def __missing__(self, key):
        with self._lock:
            return super().__missing__(key) if key not in self else self[key]


def on_all(ranks, run):
    """Run a function on the collectives of every rank, each in a thread; return the results by rank."""
    queues = Queues()
    collectives = [Collectives(MemoryMessenger(queues, ranks, rank)) for rank in range(ranks)]
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, collectives))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_broadcast__reaches_all_from_any_root(ranks):
    for root in range(ranks):

        def run(collectives, root=root):
            tensor = torch.full((4,), float(collectives.rank))
            collectives.broadcast(tensor, root)
            return tensor

        assert all(torch.equal(tensor, torch.full((4,), float(root))) for tensor in on_all(ranks, run))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [0, 1, 7, DIRECT_BYTES // 4, DIRECT_BYTES // 4 + 1, 30_001])
def test_all_reduce__gives_all_ranks_the_same_bits(ranks, size):
    parts = [torch.randn(size, generator=torch.Generator().manual_seed(rank)) for rank in range(ranks)]

    def run(collectives):
        tensor = parts[collectives.rank].clone()
        collectives.begin(PATIENCE_S)
        collectives.all_reduce(tensor, ReduceOp.SUM)
        return tensor

    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    assert all(torch.equal(tensor, total) for tensor in on_all(ranks, run))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_rest__moves_every_tensor_to_its_rank(ranks):
    def run(collectives):
        rank = collectives.rank
        tensors = [torch.tensor([10.0 * rank + peer]) for peer in range(ranks)]
        all_to_all = [torch.empty(1) for _ in range(ranks)]
        all_gather, gather = [torch.empty(1) for _ in range(ranks)], [torch.empty(1) for _ in range(ranks)]
        scatter, reduce_scatter, reduce = torch.empty(1), torch.empty(1), tensors[0].clone()
        collectives.all_to_all(all_to_all, tensors)
        collectives.all_gather(all_gather, tensors[rank])
        collectives.gather(gather, tensors[0], ranks - 1)
        collectives.scatter(scatter, tensors, 0)
        collectives.reduce_scatter(reduce_scatter, tensors, ReduceOp.MAX)
        collectives.reduce(reduce, 0, ReduceOp.SUM)
        collectives.barrier()
        return all_to_all, all_gather, gather, scatter, reduce_scatter, reduce

    for rank, results in enumerate(on_all(ranks, run)):
        all_to_all, all_gather, gather, scatter, reduce_scatter, reduce = results
        assert [tensor.item() for tensor in all_to_all] == [10.0 * peer + rank for peer in range(ranks)]
        assert [tensor.item() for tensor in all_gather] == [11.0 * peer for peer in range(ranks)]
        if rank == ranks - 1:
            assert [tensor.item() for tensor in gather] == [10.0 * peer for peer in range(ranks)]
        assert scatter.item() == rank and reduce_scatter.item() == 10.0 * (ranks - 1) + rank
        assert reduce.item() == (sum(10.0 * peer for peer in range(ranks)) if rank == 0 else 10.0 * rank)


def test_reduction__names_those_there_are():
    with pytest.raises(ValueError, match="which has SUM, AVG"):
        reduction(ReduceOp.PREMUL_SUM)
