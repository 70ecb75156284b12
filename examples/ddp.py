"""Train a small transformer by DistributedDataParallel over the fabric, while you cut links.

    mrc up -d
    mrc train examples/ddp.py                      # one rank on each of two hosts; --ranks 4 for more
    mrc link p0-t0-0 p0-t1-0 down                  # meanwhile, in another terminal
    mrc train --backend loopback examples/ddp.py   # the same by gloo over loopback: the same SHA-256

The text is made here: words of a chain in which each word decides what may follow.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mrc_testbed.torch  # noqa: F401 - registers the backend `mrc`

WORDS, LENGTH, WIDTH, BATCH = 64, 64, 128, 8


class Transformer(nn.Module):
    """Predicts the next word of each position."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.words(text) + self.positions, mask=self.mask, is_causal=True))


def batches(seed: int) -> Iterator[torch.Tensor]:
    """Yield texts of LENGTH + 1 words, without end."""
    generator = torch.Generator().manual_seed(seed)
    followers = torch.randint(0, WORDS, (WORDS, 4), generator=torch.Generator().manual_seed(0))
    while True:
        choices = torch.randint(0, 4, (LENGTH, BATCH), generator=generator)
        text = [torch.randint(0, WORDS, (BATCH,), generator=generator)]
        for choice in choices:
            text.append(followers[text[-1], choice])
        yield torch.stack(text, 1)


def sha256(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().clone().numpy().tobytes())  # numpy would pin the storage
    return digest.hexdigest()


def train(
    wrap: Callable[[nn.Module], nn.Module], gather: Callable[[nn.Module], AbstractContextManager[object]]
) -> None:
    """Train a model that `wrap` made parallel, and print a line a step at rank 0.

    `gather`: context in which each rank has all parameters.
    """
    parser = argparse.ArgumentParser(description="Train a small transformer, one rank of several.")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group(os.environ.get("MRC_TRAIN_BACKEND", "mrc"))
    rank = dist.get_rank()
    model = wrap(Transformer())
    optimizer, texts = torch.optim.AdamW(model.parameters(), 1e-3), batches(1 + rank)
    for step in range(1, arguments.steps + 1):
        start = time.monotonic()
        text = next(texts)
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}  {time.monotonic() - start:.3f} s", flush=True)
    with gather(model):
        print(f"rank {rank}: SHA-256 of the parameters {sha256(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train(DistributedDataParallel, nullcontext)
