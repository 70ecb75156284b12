"""The machine's memory: how much of it is free, and a folder in it for files of a run.

The folder is a tmpfs whose files have huge pages. A packet of 4096 bytes that a host receives is a page of a new file.
In a page of 2 MiB it costs little more than the copy, 0.2 to 0.3 us; page by page the kernel finds, zeroes, maps and
marks each: 3 us on a tmpfs without huge pages, as /run is, and 2 to 8 on a disk (docs/design/agent-turns.md).

A tmpfs is found again by its source, a name that its maker chose, whatever became of the maker.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

_SHMEM = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_OPTIONS = "huge=within_size"
"""Options of the mount; not `always`, which takes 2 MiB for a file of one byte."""
_MS_NOSUID, _MS_NODEV, _MNT_DETACH = 2, 4, 2
_TRY_S = 60.0
"""A bound for a trial that takes milliseconds, seconds: without an answer, files are on the disk."""
_libc = ctypes.CDLL(None, use_errno=True)


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes to have without swapping (MemAvailable), within the container's limit."""
    free_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            free_bytes = int(line.split()[1]) * 1024
    return max(0, min([free_bytes, *_limits(root)]))


def _limits(root: Path) -> list[int]:
    """Return the bytes that each control group of this process leaves (version 2 alone)."""
    try:
        group_path = (root / "proc/self/cgroup").read_text().partition("0::/")[2].strip()
    except OSError:
        return []
    top, limits = root / "sys/fs/cgroup", []
    for group in (top / group_path, *(top / parent for parent in Path(group_path).parents)):
        try:
            limits.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
        except (OSError, ValueError):  # the root has no limit, and others say `max`
            continue
    return limits


def obstacle() -> str | None:
    """Return the reason why a folder in memory is impossible here; None when it is possible.

    The trial runs in a mount namespace of its own, and takes some 10 ms.
    """
    reason = _forbidden()
    if reason is not None:
        return reason
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", f"{_OPTIONS},size=2m", "mrc-try", "/tmp"]
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TRY_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot try: {error}"
    return None if process.returncode == 0 else (process.stderr.strip() or f"mount ended with {process.returncode}")


def _forbidden() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    try:
        whole = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    except OSError:  # a kernel without user namespaces
        whole = True
    if not whole:
        return "in a user namespace, outside of which nobody would see the files"
    try:
        setting = _SHMEM.read_text()
    except OSError:
        return f"this kernel has no huge pages for tmpfs (no {_SHMEM})"
    return f"huge pages for tmpfs are switched off: {_SHMEM} is deny" if "[deny]" in setting else None


def mount_folder(folder: Path, source: str, size: int) -> None:
    """Mount a tmpfs of at most `size` bytes on an empty folder. Raises OSError where that cannot be."""
    reason = _forbidden()
    if reason is not None:
        raise OSError(f"{folder}: {reason}")
    options = f"{_OPTIONS},size={size},mode=0755".encode()
    if _libc.mount(source.encode(), os.fsencode(folder), b"tmpfs", _MS_NOSUID | _MS_NODEV, options):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(folder))


def mounted_folders(source: str) -> list[Path]:
    """Folders of this mount namespace on which the tmpfs of that name is."""
    folders = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        mount_fields, _, source_fields = line.partition(" - ")
        if source_fields.split(" ")[:2] == ["tmpfs", source]:
            folders.append(Path(_unescape(mount_fields.split(" ")[4])))
    return folders


def unmount_folders(source: str) -> list[Path]:
    """Unmount the tmpfs of that name, with all that is in it, and return where it was. Raises OSError.

    Somebody who has a file of it open keeps that file, and nobody finds it any more.
    """
    folders = mounted_folders(source)
    for folder in folders:
        if _libc.umount2(os.fsencode(folder), _MNT_DETACH):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    return folders


def _unescape(text: str) -> str:
    """A path of mountinfo, where space, tab, newline and backslash are octal numbers."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text
