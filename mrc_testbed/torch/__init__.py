"""Backend `mrc` of torch.distributed: ranks send over the fabric, by libmrc.

    import mrc_testbed.torch                                  # registers it
    torch.distributed.init_process_group("mrc")               # in a program that `mrc exec` or `mrc train` runs

It needs PyTorch (`pip install mrc-testbed[torch]`) and a fabric that is up (`mrc up -d`).
"""

try:
    import torch.distributed  # noqa: F401 - so that the error names the cure
except ImportError as error:
    raise ImportError(f"mrc_testbed.torch needs PyTorch: pip install 'mrc-testbed[torch]' ({error})") from error

from mrc_testbed.torch.process_group import MrcProcessGroup, register

__all__ = ["MrcProcessGroup", "register"]

register()
