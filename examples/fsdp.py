"""Train the transformer of ddp.py by FullyShardedDataParallel: a rank keeps a share of it.

mrc up -d
mrc train --ranks 4 examples/fsdp.py
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from ddp import train
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel


def shard(model: nn.Module) -> nn.Module:
    """Return the model with its parameters shared out among the ranks."""
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def gather(model: nn.Module) -> AbstractContextManager[object]:
    """Give each rank all parameters for a while."""
    return FullyShardedDataParallel.summon_full_params(model, writeback=False)


if __name__ == "__main__":
    train(shard, gather)
