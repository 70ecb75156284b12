"""The CPU in place of CUDA, for tests of PyTorch that ask for GPUs but need none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.testing._internal import common_distributed


class CpuForCuda(TorchFunctionMode):
    """Mode in which functions that are asked for a CUDA device take the CPU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        values = [_on_cpu(value, may_be_number=function is torch.Tensor.to) for value in args]
        named_values = {name: _on_cpu(value, may_be_number=name == "device") for name, value in (kwargs or {}).items()}
        return function(*values, **named_values)


def _on_cpu(value: Any, *, may_be_number: bool) -> Any:
    """Return the CPU for a CUDA device, and any other value as it is.

    `may_be_number`: a number is that of a device.
    """
    is_number = may_be_number and isinstance(value, int) and not isinstance(value, bool)
    is_cuda = isinstance(value, str) and value.startswith("cuda")
    is_device = isinstance(value, torch.device) and value.type == "cuda"
    return torch.device("cpu") if is_number or is_cuda or is_device else value


def ask_no_gpus() -> None:
    """Let the suite, before it is imported, run tests that ask for GPUs, a GPU a rank."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        return test

    common_distributed.skip_if_lt_x_gpu = lambda *_, **__: decorate
    common_distributed.skip_if_no_gpu = decorate
    common_distributed.init_multigpu_helper = lambda ranks, _: {rank: [rank] for rank in range(ranks)}


def take_cpu() -> None:
    """Let this process take the CPU where it is asked for CUDA, from now on."""
    CpuForCuda().__enter__()
    make_ddp, move_module = DistributedDataParallel.__init__, torch.nn.Module.to

    def make_ddp_on_cpu(ddp: Any, module: Any, *devices: Any, **words: Any) -> None:
        named_values = {name: value for name, value in words.items() if name not in ("device_ids", "output_device")}
        make_ddp(ddp, module, None, None, *devices[2:], **named_values)

    def move_to_cpu(module: Any, *values: Any, **words: Any) -> Any:
        return move_module(module, *(_on_cpu(value, may_be_number=True) for value in values), **words)

    DistributedDataParallel.__init__ = make_ddp_on_cpu
    setattr(torch.nn.Module, "to", move_to_cpu)  # noqa: B010 - `to` is PyTorch's name
    torch.nn.Module.cuda = lambda module, *_: module
    torch.cuda.set_device = torch.cuda.synchronize = torch.cuda.manual_seed = lambda *_, **__: None
    torch.cuda.current_device = lambda: 0
