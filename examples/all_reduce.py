"""Time all_reduce of several sizes over the fabric, by any backend of torch.distributed.

    mrc up -d
    mrc train examples/all_reduce.py                  # MRC
    mrc train --backend gloo examples/all_reduce.py   # gloo, over the fabric's IP

examples/mpi/all_reduce.c is the same for MPI.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import mrc_testbed.torch  # noqa: F401 - registers the backend `mrc`

SMALLEST, LARGEST = 4096, 16 << 20
"""Bytes; another largest size may stand behind the program's name."""
ROUNDS = 5


def main() -> None:
    """Time each size at this rank; rank 0 prints."""
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("MRC_TRAIN_BACKEND", "mrc"))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    size, largest = SMALLEST, int(sys.argv[1]) if len(sys.argv) > 1 else LARGEST
    while size <= largest:
        times = []
        for _ in range(1 + ROUNDS):  # the first warms up
            tensor = torch.full((size // 4,), float(rank))
            dist.barrier()
            start = time.monotonic()
            dist.all_reduce(tensor)
            times.append(time.monotonic() - start)
            if not torch.all(tensor == ranks * (ranks - 1) / 2):
                raise SystemExit(f"rank {rank}: a wrong sum of {size} bytes")
        if rank == 0:
            print(f"all_reduce {size} bytes {sorted(times[1:])[ROUNDS // 2]:.6f} s", flush=True)
        size *= 4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
