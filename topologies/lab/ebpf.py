"""eBPF without a compiler or a library: a small assembler, and bpf(2) calls for maps and programs.

The program of topologies/lab/cables.py has a hundred instructions and reads no struct of the kernel's but the head of
`__sk_buff`, so neither clang nor libbpf has to be on a user's machine. Encodings and calls: linux/bpf.h, bpf(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from functools import cache

from mrc_testbed.ipc.rundir import FabricError

SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
"""Number of bpf(2) by machine."""
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, MAP_DELETE, PROG_LOAD = 0, 1, 2, 3, 5
MAP_TYPE_HASH, PROG_TYPE_SCHED_CLS = 1, 3
PSEUDO_MAP_FD = 1
LOG_BYTES = 1 << 20
_ATTR_BYTES = 128

_ALU64 = {
    "add": 0x07,
    "sub": 0x17,
    "mul": 0x27,
    "and": 0x57,
    "lsh": 0x67,
    "rsh": 0x77,
    "mod": 0x97,
    "xor": 0xA7,
    "mov": 0xB7,
}
"""Operation code with an immediate; with a register as source, 8 more."""
_JUMP = {"eq": 0x15, "ge": 0x35, "ne": 0x55, "lt": 0xA5}
_LOAD = {1: 0x71, 2: 0x69, 4: 0x61, 8: 0x79}
_STORE = {1: 0x73, 2: 0x6B, 4: 0x63, 8: 0x7B}
_FROM_REGISTER = 0x08


class Assembler:
    """Instructions in order.

    Registers are numbers 0 to 10; a jump names a label that `label` defines anywhere.
    """

    def __init__(self) -> None:
        self._code: list[bytes] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}

    def _emit(self, code: int, dst: int = 0, src: int = 0, offset: int = 0, value: int = 0) -> None:
        self._code.append(struct.pack("=BBhi", code, src << 4 | dst, offset, value))

    def label(self, name: str) -> None:
        """Define `name` as the place of the next instruction."""
        if name in self._labels:
            raise ValueError(f"label {name!r} stands twice")
        self._labels[name] = len(self._code)

    def alu(self, operation: str, dst: int, value: int) -> None:
        """dst = dst OPERATION value, 64 bits; `value` is signed, of 32 bits."""
        self._emit(_ALU64[operation], dst, value=value)

    def alu_reg(self, operation: str, dst: int, src: int) -> None:
        """dst = dst OPERATION src, 64 bits."""
        self._emit(_ALU64[operation] | _FROM_REGISTER, dst, src)

    def constant(self, dst: int, value: int, src: int = 0) -> None:
        """dst = a value of 64 bits; takes two places."""
        low, high = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF
        self._code.append(struct.pack("=BBhI", 0x18, src << 4 | dst, 0, low))
        self._code.append(struct.pack("=BBhI", 0, 0, 0, high))

    def map(self, dst: int, fd: int) -> None:
        """dst = the map behind a file descriptor."""
        self.constant(dst, fd, PSEUDO_MAP_FD)

    def load(self, dst: int, src: int, offset: int, size: int) -> None:
        """dst = the `size` bytes (1, 2, 4, 8) at src + offset."""
        self._emit(_LOAD[size], dst, src, offset)

    def store(self, dst: int, offset: int, src: int, size: int) -> None:
        """The `size` bytes at dst + offset = src."""
        self._emit(_STORE[size], dst, src, offset)

    def count(self, dst: int, offset: int, src: int) -> None:
        """Add src to the 8 bytes at dst + offset, atomically."""
        self._emit(0xDB, dst, src, offset)

    def jump(self, label: str) -> None:
        """Go on at `label`."""
        self._jumps[len(self._code)] = label
        self._emit(0x05)

    def jump_if(self, condition: str, dst: int, value: int, label: str) -> None:
        """Go on at `label` if dst is eq, ne, ge or lt (unsigned) `value`."""
        self._jumps[len(self._code)] = label
        self._emit(_JUMP[condition], dst, value=value)

    def jump_if_reg(self, condition: str, dst: int, src: int, label: str) -> None:
        """Go on at `label` if dst is eq, ne, ge or lt (unsigned) src."""
        self._jumps[len(self._code)] = label
        self._emit(_JUMP[condition] | _FROM_REGISTER, dst, src)

    def call(self, helper: int) -> None:
        """Call a helper function of the kernel by its number: arguments in r1 to r5, the result in r0."""
        self._emit(0x85, value=helper)

    def exit(self) -> None:
        """End; r0 is the result."""
        self._emit(0x95)

    def code(self) -> bytes:
        """The program, jumps resolved. Raises KeyError for a label that nothing defines."""
        out = list(self._code)
        for index, label in self._jumps.items():
            code, registers, _, value = struct.unpack("=BBhi", out[index])
            out[index] = struct.pack("=BBhi", code, registers, self._labels[label] - index - 1, value)
        return b"".join(out)


class HashMap:
    """A hash map of the kernel's with keys of 4 bytes (unsigned) and values of a fixed length."""

    def __init__(self, name: str, value_bytes: int, entries: int) -> None:
        self.value_bytes = value_bytes
        attributes = struct.pack("=IIIIIII16s", MAP_TYPE_HASH, 4, value_bytes, entries, 0, 0, 0, name.encode()[:15])
        self.fd = _bpf(MAP_CREATE, attributes, f"make the map {name}")

    def __getitem__(self, key: int) -> bytes:
        """Raises KeyError."""
        value = ctypes.create_string_buffer(self.value_bytes)
        try:
            self._call(MAP_LOOKUP, key, value)
        except FileNotFoundError:
            raise KeyError(key) from None
        return value.raw

    def __setitem__(self, key: int, value: bytes) -> None:
        if len(value) != self.value_bytes:
            raise ValueError(f"a value of {len(value)} bytes for a map of {self.value_bytes}")
        self._call(MAP_UPDATE, key, ctypes.create_string_buffer(value, len(value)))

    def discard(self, key: int) -> None:
        """Remove an entry; nothing when there is none."""
        try:
            self._call(MAP_DELETE, key, None)
        except FileNotFoundError:
            return

    def close(self) -> None:
        """Let go; the kernel keeps the map while a program uses it. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _call(self, command: int, key: int, value: ctypes.Array[ctypes.c_char] | None) -> None:
        key_buffer = ctypes.create_string_buffer(struct.pack("=I", key), 4)
        value_address = ctypes.addressof(value) if value is not None else 0
        _bpf(command, struct.pack("=IxxxxQQQ", self.fd, ctypes.addressof(key_buffer), value_address, 0), "use a map")


def load_program(name: str, code: bytes) -> int:
    """Load a traffic classifier (SCHED_CLS); return its file descriptor.

    Raises FabricError with the verifier's words.

    The helper functions it calls must be free for programs of any license: none is declared.
    """
    license_text = ctypes.create_string_buffer(b"Apache-2.0")
    code_buffer = ctypes.create_string_buffer(code, len(code))
    addresses = ctypes.addressof(code_buffer), ctypes.addressof(license_text)

    def attributes(log: ctypes.Array[ctypes.c_char] | None) -> bytes:
        logging = (1, len(log), ctypes.addressof(log)) if log is not None else (0, 0, 0)
        head = struct.pack("=IIQQIIQ", PROG_TYPE_SCHED_CLS, len(code) // 8, *addresses, *logging)
        return head + struct.pack("=II16s", 0, 0, name.encode()[:15])

    task = f"load the program {name}"
    try:
        return _bpf(PROG_LOAD, attributes(None), task)
    except FabricError as error:
        log = ctypes.create_string_buffer(LOG_BYTES)
        try:
            os.close(_bpf(PROG_LOAD, attributes(log), task))
        except FabricError:
            words = log.value.decode(errors="replace").strip().splitlines()[-3:]
            raise FabricError(f"{error}" + "".join(f"; {line}" for line in words)) from None
        raise


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: bytes, task: str) -> int:
    """The result of bpf(2). Raises FileNotFoundError for a key that is not there, else FabricError."""
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise FabricError(f"cannot {task}: bpf(2) has no known number on {platform.machine()}")
    attribute_buffer = ctypes.create_string_buffer(attributes, max(len(attributes), _ATTR_BYTES))
    result: int = _libc().syscall(
        ctypes.c_long(number), ctypes.c_long(command), attribute_buffer, ctypes.c_long(len(attribute_buffer))
    )
    if result < 0:
        code = ctypes.get_errno()
        if code == errno.ENOENT:
            raise FileNotFoundError(code, os.strerror(code))
        cure = " (BPF needs root, and a kernel with CONFIG_BPF_SYSCALL)" if code in (errno.EPERM, errno.ENOSYS) else ""
        raise FabricError(f"cannot {task}: bpf(2): {os.strerror(code)}{cure}")
    return result


__all__ = ["Assembler", "HashMap", "load_program"]
