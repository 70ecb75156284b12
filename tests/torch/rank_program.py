"""One rank of a job for the tests: `rank_program.py CASE`, with RANK, WORLD_SIZE and STORE set.

Every collective runs on backend mrc and on gloo over loopback, and both must give the same bits. The cases of
MANY_CASES are for any number of ranks.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import math
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

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
    """Check tensors whose bytes are not their values in order, empty ones, bits and averages."""

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
    minus, conjugate = torch._neg_view(torch.full((3,), RANK + 1.0)), torch.tensor([1 + 2j * RANK]).conj()
    assert dist.group.WORLD.broadcast(minus, 1).wait() and torch.equal(minus, torch.full((3,), -2.0))
    dist.group.WORLD.broadcast(conjugate, 1).wait()
    assert conjugate.item() == 1 - 2j
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


def several_tensors(gloo: dist.ProcessGroup) -> None:
    """Check several tensors in a call, and sparse ones whose indices overlap."""

    def run(group):
        tensors = [values(torch.float32, size, size) for size in (1, 0, 40_000)]
        outputs = [[torch.empty_like(tensor) for tensor in tensors] for _ in range(RANKS)]
        dist.all_gather_coalesced(outputs, tensors, group=group)
        totals = [tensor.clone() for tensor in tensors]
        dist.all_reduce_coalesced(totals, group=group)
        indices = torch.tensor([[RANK, RANK + 1, RANK], [0, 1, 0]])  # not coalesced: the first and last are one
        sparse = torch.sparse_coo_tensor(indices, torch.arange(6.0).view(3, 2) + RANK, (RANKS + 1, 2, 2))
        dist.all_reduce(sparse, group=group)
        return [tensor for row in outputs for tensor in row] + totals + [sparse.to_dense()]

    compare(run, gloo)
    parts, totals = [torch.full((RANKS, 3), float(RANK))] * 2, [torch.empty(3), torch.empty(3)]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(totals, parts).wait()
    assert all(torch.equal(total, torch.full((3,), RANKS * (RANKS - 1) / 2)) for total in totals)


def overloads(gloo: dist.ProcessGroup) -> None:
    """Check that methods of a group take bare tensors and words, as those of gloo's do."""
    group, tensor, outputs = dist.group.WORLD, torch.tensor([RANK + 1.0]), [torch.empty(1) for _ in range(RANKS)]
    highest, first, root = tensor.clone(), tensor.clone(), RANKS - 1
    group.allreduce(highest, dist.ReduceOp.MAX).wait()
    group.broadcast(first, 0).wait()
    group.allgather(outputs, tensor).wait()
    assert highest == RANKS and first == 1 and torch.cat(outputs).tolist() == list(range(1, RANKS + 1))
    product, share, total = tensor.clone(), torch.empty(1), torch.empty(1)
    group.reduce(product, root, op=dist.ReduceOp.PRODUCT).wait()
    group.scatter(share, outputs if root == RANK else [], root=root).wait()
    group.reduce_scatter(total, outputs).wait()
    group.gather(outputs if root == RANK else [], tensor, root).wait()
    assert share == RANK + 1 and total == RANKS * (RANK + 1)
    assert root != RANK or product == math.prod(range(1, RANKS + 1))
    group.barrier(timeout=timedelta(seconds=60)).wait()


def monitored_barrier(gloo: dist.ProcessGroup) -> None:
    """A barrier of the group names who did not come, in gloo's words."""
    group = dist.group.WORLD
    group.monitored_barrier(timedelta(seconds=60))
    group.monitored_barrier(timedelta(seconds=60), wait_all_ranks=True)
    if RANK == 0:
        for seconds, words in ((0.5, "Rank 1 failed to pass monitoredBarrier in 500 ms"), (0, "Rank 0 timed out in")):
            try:
                group.monitored_barrier(timedelta(seconds=seconds))
            except RuntimeError as error:
                check_words(error, words)
            else:
                raise AssertionError("a barrier without rank 1")
    dist.barrier()


def futures(gloo: dist.ProcessGroup) -> None:
    """Let a callback wait for another collective; a collective and the store have time-outs of their own."""
    seen_totals = []

    def add_again(future):
        tensor = future.value()[0]
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        seen_totals.append(tensor.item())
        return tensor

    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert work.get_future().then(add_again).wait() == RANKS**2 and seen_totals == [RANKS**2]
    assert work.get_future().wait()[0] == RANKS**2  # once the collective has ended
    store = dist.distributed_c10d._get_default_store()
    store_timeout = store.timeout
    group = dist.new_group(backend="mrc", timeout=timedelta(seconds=3))
    assert store.timeout == store_timeout
    if RANK == 0:
        try:
            group.barrier(timeout=timedelta(milliseconds=200)).wait()
        except RuntimeError as error:
            check_words(error, "not done within the timeout of 0.2 s")
        else:
            raise AssertionError("no time-out")
    dist.barrier()


def profiler(gloo: dist.ProcessGroup) -> None:
    """A profiler sees collectives and messages by name, with their shapes, as asynchronous."""
    tensor, peer = torch.ones(3, 4), 1 - RANK
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(tensor)
        works = [dist.isend(tensor, peer), dist.irecv(torch.empty(3, 4), peer)]
        for work in works:
            work.wait()
    events = {event.name: event for event in profile.events() if event.name.startswith("mrc:")}
    assert set(events) == {"mrc:all_reduce", "mrc:send", "mrc:recv"}, events
    assert all(event.is_async and event.input_shapes == [[3, 4]] for event in events.values()), events


def uneven(gloo: dist.ProcessGroup) -> None:
    """DDP's join: a rank with fewer inputs follows the others, whose work C++ holds alone."""
    model = DistributedDataParallel(torch.nn.Linear(4, 4, bias=False))
    with model.join():
        for _ in range(3 + 2 * RANK):
            gc.collect()
            model(torch.ones(2, 4)).sum().backward()
    gradients = [torch.empty(4, 4) for _ in range(RANKS)]
    dist.all_gather(gradients, model.module.weight.detach())
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


def second_job(gloo: dist.ProcessGroup) -> None:
    """A job ends its groups and meets anew, by a named device, a hash store of one rank among them."""
    dist.destroy_process_group()
    store = dist.FileStore(os.environ["STORE"] + "-again", RANKS)
    dist.init_process_group("cpu:mrc", store=store, rank=RANK, world_size=RANKS)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor[0] == RANKS
    dist.destroy_process_group()
    dist.init_process_group("mrc", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(tensor)
    assert tensor[0] == RANKS


def all_collectives(gloo: dist.ProcessGroup) -> None:
    """Every collective of any number of ranks, against sums in the order of the ranks."""
    parts = [torch.randn(30_000, generator=torch.Generator().manual_seed(rank)) for rank in range(RANKS)]
    own_part, total = parts[RANK], functools.reduce(torch.add, parts)
    for size in (1, 30_000):
        tensor = own_part[:size].clone()
        dist.all_reduce(tensor)
        assert torch.equal(tensor, total[:size])
    for root in range(RANKS):
        tensor, root_total, share = own_part.clone(), own_part.clone(), torch.empty(30_000)
        outputs = [torch.empty(30_000) for _ in range(RANKS)] if root == RANK else None
        dist.broadcast(tensor, root)
        dist.reduce(root_total, root)
        dist.gather(own_part, outputs, dst=root)
        dist.scatter(share, parts if root == RANK else None, src=root)
        assert torch.equal(tensor, parts[root]) and torch.equal(share, own_part)
        assert root != RANK or (
            torch.equal(root_total, total) and torch.equal(torch.stack(outputs), torch.stack(parts))
        )
    outputs, share = [torch.empty(30_000) for _ in range(RANKS)], torch.empty(30_000)
    dist.all_gather(outputs, own_part)
    dist.reduce_scatter(share, [part * (RANK + 1) for part in parts])
    assert torch.equal(torch.stack(outputs), torch.stack(parts))
    assert torch.equal(share, functools.reduce(torch.add, [own_part * (rank + 1) for rank in range(RANKS)]))
    # Uneven: rank r sends r + 1 rows to rank 0, r + 2 to rank 1, and so on.
    rows, counts = torch.arange(RANKS) + RANK + 1, [rank + RANK + 1 for rank in range(RANKS)]
    received = torch.empty(int(rows.sum()), 2)
    dist.all_to_all_single(received, torch.full((int(rows.sum()), 2), float(RANK)), counts, counts)
    assert torch.equal(received[:, 1], torch.arange(RANKS).repeat_interleave(rows).float())
    objects = [None] * RANKS
    dist.all_gather_object(objects, {RANK})
    assert objects == [{rank} for rank in range(RANKS)]
    messages = [(dist.isend, own_part, RANK + 1), (dist.irecv, share, RANK - 1)]
    operations = [dist.P2POp(function, tensor, peer % RANKS) for function, tensor, peer in messages]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert torch.equal(share, parts[RANK - 1])


def models(gloo: dist.ProcessGroup) -> None:
    """DDP and both kinds of FSDP: after some steps all ranks have the same parameters."""
    for wrap in (DistributedDataParallel, FullyShardedDataParallel, fully_shard):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(40, 100), torch.nn.ReLU(), torch.nn.Linear(100, 7))
        options = {"device_id": torch.device("cpu")} if wrap is FullyShardedDataParallel else {}
        mesh = {"mesh": init_device_mesh("cpu", (RANKS,))} if wrap is fully_shard else {}
        wrapped_model = wrap(model, **options, **mesh)
        optimizer = torch.optim.SGD(wrapped_model.parameters(), 0.1)
        for step in range(3):
            inputs = torch.randn(5, 40, generator=torch.Generator().manual_seed(step * RANKS + RANK))
            optimizer.zero_grad()
            wrapped_model(inputs).square().mean().backward()
            optimizer.step()
        if wrap is FullyShardedDataParallel:
            with FullyShardedDataParallel.summon_full_params(wrapped_model):
                parameters = [parameter.detach().clone() for parameter in model.parameters()]
        else:
            tensors = [parameter.detach() for parameter in model.parameters()]
            parameters = [tensor.full_tensor() if wrap is fully_shard else tensor for tensor in tensors]
        digests = [None] * RANKS
        dist.all_gather_object(digests, hashlib.sha256(b"".join(p.numpy().tobytes() for p in parameters)).hexdigest())
        assert len(set(digests)) == 1, (wrap, digests)


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
    group = dist.group.WORLD
    for call, words in (
        (lambda: dist.broadcast(torch.eye(3).to_sparse(), 0), "dense tensors on the CPU alone"),
        (lambda: dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX), "dense tensors on the CPU alone"),
        (lambda: dist.all_gather([torch.empty(3)], torch.empty(3)), "for 2 ranks"),
        (lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND), "bitwise"),
        (lambda: group.send([torch.ones(1)], RANK, 0), "to itself"),
        (lambda: group.recv([torch.ones(1)], 7, 0), "ranks 0 to 1, not 7"),
        (lambda: group.broadcast(torch.ones(1), 7), "ranks 0 to 1, not 7"),
        (lambda: group.send([torch.ones(1)], 1 - RANK, -1), "the tag -1 is not"),
        (lambda: group.alltoall([torch.ones(1)], [torch.ones(1)]), "1 to 1 tensors for 2 ranks"),
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
        several_tensors,
        overloads,
        monitored_barrier,
        futures,
        profiler,
        uneven,
        second_job,
        groups,
        refusals,
        time_out,
        abort,
        close_early,
        dead_rank,
    )
}
MANY_CASES = {case.__name__: case for case in (all_collectives, models)}


def main() -> None:
    store = dist.FileStore(os.environ["STORE"], RANKS)
    dist.init_process_group("mrc", store=store, rank=RANK, world_size=RANKS, timeout=timedelta(seconds=100))
    gloo = dist.new_group(backend="gloo")
    (CASES | MANY_CASES)[sys.argv[1]](gloo)
    if sys.argv[1] != "dead_rank":
        dist.destroy_process_group()
    print("passed")


if __name__ == "__main__":
    main()
