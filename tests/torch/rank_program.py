"""One rank of a job for the tests: `rank_program.py CASE`, with RANK, WORLD_SIZE and STORE set.

Every collective runs on backend mrc and on gloo over loopback, and both must give the same bits.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

import mrc_testbed.torch  # noqa: F401 - registers the backend

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
)
SIZES = (1, 1000, 300_001)
"""Elements: less than a chunk, and more than the ring of a peer holds."""


def values(dtype: torch.dtype, size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1000 + RANK)
    return torch.randint(0, 5, (size,), generator=generator).to(dtype)


def compare(run: Callable[[dist.ProcessGroup], list[torch.Tensor]], gloo: dist.ProcessGroup) -> None:
    """Run something on both backends, and compare every bit of the results."""
    for result, gloo_result in zip(run(dist.group.WORLD), run(gloo), strict=True):
        assert result.dtype == gloo_result.dtype and torch.equal(result, gloo_result), (result, gloo_result)


def check_words(error: Exception, words: str) -> None:
    assert words in str(error), error


def collectives(gloo: dist.ProcessGroup) -> None:
    for seed, dtype in enumerate(DTYPES):
        for size in SIZES:
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):

                def all_reduce(group, dtype=dtype, size=size, op=op, seed=seed):
                    tensor = values(dtype, size, seed)
                    dist.all_reduce(tensor, op=op, group=group)
                    return [tensor]

                compare(all_reduce, gloo)

            # What copies has no operation.
            def copies(group, dtype=dtype, size=size, seed=seed):
                tensor, outputs = values(dtype, size, seed), [torch.empty(size, dtype=dtype) for _ in range(RANKS)]
                broadcast, total = tensor.clone(), tensor.clone()
                dist.broadcast(broadcast, src=RANKS - 1, group=group)
                dist.all_gather(outputs, tensor, group=group)
                dist.reduce(total, dst=1, group=group)
                gather_outputs = [torch.zeros_like(tensor) for _ in range(RANKS)]
                dist.gather(tensor, gather_outputs if RANK == 0 else None, dst=0, group=group)
                share = torch.empty_like(tensor)
                dist.scatter(share, outputs if RANK == 1 else None, src=1, group=group)
                both_ways = torch.empty(RANKS, size, dtype=dtype)
                dist.all_to_all_single(both_ways, torch.stack(outputs) + RANK, group=group)
                flat = torch.empty(RANKS * size, dtype=dtype)
                dist.all_gather_into_tensor(flat, tensor, group=group)
                results = [broadcast, *outputs, *gather_outputs, share, both_ways, flat]
                return [*results, total] if RANK == 1 else results

            compare(copies, gloo)


def reduce_scatter(gloo: dist.ProcessGroup) -> None:
    """Check against all_reduce: gloo has reduce_scatter in newer versions only."""
    for dtype in DTYPES:
        tensor, output = values(dtype, 70_000 * RANKS, 5), torch.empty(70_000, dtype=dtype)
        total = tensor.clone()
        dist.all_reduce(total)
        dist.reduce_scatter_tensor(output, tensor)
        assert torch.equal(output, total.chunk(RANKS)[RANK])
        dist.reduce_scatter(output, [share.clone() for share in tensor.chunk(RANKS)], op=dist.ReduceOp.MAX)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        assert torch.equal(output, tensor.chunk(RANKS)[RANK])


def layouts(gloo: dist.ProcessGroup) -> None:
    """Check transposed and empty tensors, bits, averages, and several tensors at once."""

    def run(group):
        matrix = values(torch.float32, 600, 1).view(20, 30).t()
        dist.all_reduce(matrix, group=group)
        bits, empty = values(torch.int32, 40, 2), torch.empty(0)
        dist.all_reduce(bits, op=dist.ReduceOp.BXOR, group=group)
        dist.all_reduce(empty, group=group)
        flags = torch.tensor([True, RANK == 0])
        dist.broadcast(flags, src=1, group=group)
        return [matrix, bits, empty, flags]

    compare(run, gloo)
    average = torch.full((5,), float(RANK))
    dist.all_reduce(average, op=dist.ReduceOp.AVG)
    assert torch.equal(average, torch.full((5,), (RANKS - 1) / 2))
    works = [dist.all_reduce(torch.full((n,), 1.0), async_op=True) for n in (3, 50_000)]
    for work in works:
        work.wait()
    assert all(work.is_completed() for work in works)


def messages(gloo: dist.ProcessGroup) -> None:
    """Check send and recv: large both ways at once, tags out of order, any source, objects."""
    peer = (RANK + 1) % RANKS
    size = 2_000_000
    sends = [dist.isend(torch.full((size,), float(RANK)), peer, tag=tag) for tag in (1, 2)]
    second, first = torch.empty(size), torch.empty(size)
    source = (RANK - 1) % RANKS
    dist.recv(second, source, tag=2)
    dist.recv(first, source, tag=1)
    for work in sends:
        work.wait()
    assert torch.equal(first, torch.full((size,), float(source))) and torch.equal(second, first)
    dist.barrier()
    if RANK:
        dist.send(torch.tensor([RANK]), 0, tag=9)
    else:
        tensor = torch.empty(1, dtype=torch.int64)
        assert {dist.recv(tensor, tag=9) for _ in range(RANKS - 1)} == set(range(1, RANKS))
    objects = [None] * RANKS
    dist.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": rank} for rank in range(RANKS)]


def groups(gloo: dist.ProcessGroup) -> None:
    """Collectives of two groups at once, and of a group that ends before the others."""
    second = dist.new_group(backend="mrc")
    tensor, twos = torch.ones(100_000), torch.full((100_000,), 2.0)
    works = [dist.all_reduce(tensor, async_op=True), dist.all_reduce(twos, group=second, async_op=True)]
    for work in reversed(works):
        work.wait()
    assert tensor[-1] == RANKS and twos[-1] == 2 * RANKS
    dist.destroy_process_group(second)
    dist.all_reduce(tensor)
    assert tensor[0] == RANKS**2


def refusals(gloo: dist.ProcessGroup) -> None:
    """Errors name the cause, and the group works on after those of the caller."""
    for call, words in (
        (lambda: dist.all_reduce(torch.eye(3).to_sparse()), "dense tensors on the CPU alone"),
        (lambda: dist.all_gather([torch.empty(3)], torch.empty(3)), "for 2 ranks"),
        (lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND), "bitwise"),
    ):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            check_words(error, words)
        else:
            raise AssertionError(words)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == RANKS


def dead_rank(gloo: dist.ProcessGroup) -> None:
    """The rank that stays hears of the one that dies, long before the time-out of the group."""
    dist.barrier()
    if RANK == 1:
        os._exit(0)
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        check_words(error, "rank 1")
    else:
        raise AssertionError("all_reduce with a dead rank")


def time_out(gloo: dist.ProcessGroup) -> None:
    """A rank that never comes ends the others' call at the time-out of the group."""
    group = dist.new_group(backend="mrc", timeout=timedelta(seconds=2))
    if RANK == 0:
        try:
            dist.all_reduce(torch.ones(3), group=group)
        except RuntimeError as error:
            check_words(error, "not done within the timeout of 2 s")
        else:
            raise AssertionError("no time-out")
    dist.barrier()


def abort(gloo: dist.ProcessGroup) -> None:
    """Check that a collective that waits for another rank ends when its group is given up."""
    group = dist.new_group(backend="mrc")
    if RANK == 0:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        time.sleep(0.2)
        group.abort()
        try:
            work.wait()
        except RuntimeError as error:
            check_words(error, "canceled")
        else:
            raise AssertionError("all_reduce of a group that was given up")
    dist.barrier()


def close_early(gloo: dist.ProcessGroup) -> None:
    """A rank that ends right after its last send: the message arrives all the same."""
    if RANK == 0:
        dist.send(torch.arange(200_000), 1)
    else:
        time.sleep(0.5)
        tensor = torch.empty(200_000, dtype=torch.int64)
        dist.recv(tensor, 0)
        assert torch.equal(tensor, torch.arange(200_000))


CASES = {
    case.__name__: case
    for case in (
        collectives,
        reduce_scatter,
        layouts,
        messages,
        groups,
        refusals,
        time_out,
        abort,
        close_early,
        dead_rank,
    )
}


def main() -> None:
    store = dist.FileStore(os.environ["STORE"], RANKS)
    dist.init_process_group("mrc", store=store, rank=RANK, world_size=RANKS, timeout=timedelta(seconds=100))
    gloo = dist.new_group(backend="gloo")
    CASES[sys.argv[1]](gloo)
    if sys.argv[1] != "dead_rank":
        dist.destroy_process_group()
    print("passed")


if __name__ == "__main__":
    main()
