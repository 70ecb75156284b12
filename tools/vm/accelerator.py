"""Whether KVM carries a VM on this machine: /dev/kvm may exist and not work."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

EMULATOR = "qemu-system-x86_64"
EXIT_PORT = 0xF4
EXIT_VALUE = 0x10
EXIT_CODE = EXIT_VALUE << 1 | 1
"""Exit code of QEMU after its guest has written EXIT_VALUE to the port of its device isa-debug-exit."""
FIRMWARE_BYTES = 1 << 16
RESET_OFFSET = 0xFFF0
"""Reset vector: offset of the first instruction in the last 64 KiB below 1 MiB."""
RESET_CODE = bytes((0xB0, EXIT_VALUE, 0xE6, EXIT_PORT, 0xF4))
"""Machine code: mov al, EXIT_VALUE; out EXIT_PORT, al; hlt."""
TRIAL_S = 60.0
"""A guest of three instructions that takes longer does not run at all."""


@dataclass(frozen=True)
class Accelerator:
    """Choice of libvirt's driver and CPU model, with its reason."""

    driver: str
    cpu_mode: str
    cpu_model: str
    reason: str

    @property
    def is_emulation(self) -> bool:
        return self.driver == "qemu"


def emulation(reason: str) -> Accelerator:
    """QEMU's own emulation (TCG), with a model that has what numpy's wheels need (x86-64-v2)."""
    return Accelerator("qemu", "custom", "Nehalem", reason)


def firmware() -> bytes:
    """Firmware that ends QEMU with EXIT_CODE at its first instructions."""
    return (bytes(RESET_OFFSET) + RESET_CODE).ljust(FIRMWARE_BYTES, b"\0")


def trial_command(image: Path) -> list[str]:
    """Words of QEMU with KVM, this machine's own CPU model and our firmware alone."""
    return [
        *(EMULATOR, "-machine", "pc,accel=kvm", "-cpu", "host", "-m", "16", "-display", "none", "-nodefaults"),
        *("-device", f"isa-debug-exit,iobase={EXIT_PORT:#x},iosize=1", "-bios", str(image)),
    ]


def choose_accelerator(folder: Path, device: Path = Path("/dev/kvm")) -> Accelerator:
    """Run three instructions with KVM, and choose emulation where they do not come to their end."""
    if not device.exists():
        return emulation(f"no {device}: emulation (TCG)")
    image = folder / "trial.bin"
    image.write_bytes(firmware())
    try:
        process = subprocess.run(trial_command(image), capture_output=True, text=True, timeout=TRIAL_S)
    except subprocess.TimeoutExpired:
        return emulation(f"{device} exists, but a guest did not end in {TRIAL_S:.0f} s: emulation (TCG)")
    if process.returncode == EXIT_CODE:
        return Accelerator("kvm", "host-passthrough", "", "KVM: a guest ran to its end")
    said = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
    return emulation(f"{device} exists and does not work ({said[0]}): emulation (TCG)")
