"""Make a Debian box for Vagrant and libvirt: mmdebstrap's tree, a bootable disk, an archive.

No loop device and no mount is needed. `mke2fs -d` fills the file system from the tree. GRUB is one image between
partition table and file system, which knows its two lines of configuration and reads nothing else.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Run = Callable[..., None]
"""Runs a command, given as words, to its end; its output goes to the step's log."""

RELEASES = {"debian-12": "bookworm", "debian-13": "trixie"}
"""Release as the Vagrantfile calls it -> Debian's name of it."""
PACKAGES = (
    "ca-certificates",
    "dbus",
    "linux-image-amd64",
    "openssh-server",
    "python3",
    "rsync",
    "sudo",
    "systemd-resolved",
    "systemd-sysv",
)
DISK_GIB = 12
SECTOR_BYTES = 512
START_SECTOR = 2048
"""First sector of the only partition: the gap before it, 1 MiB, holds GRUB."""
CODE_BYTES = 440
"""Length of the code in the first sector; disk signature and partition table follow it."""
CERTIFICATES = "usr/local/share/ca-certificates"
GRUB = Path("/usr/lib/grub/i386-pc")
GRUB_MODULES = ("biosdisk", "boot", "ext2", "linux", "part_msdos", "search_label")
GRUB_LINES = """\
search.fs_label mrc-root root
linux /vmlinuz root=LABEL=mrc-root ro net.ifnames=0 console=ttyS0,115200 mitigations=off
initrd /initrd.img
boot
"""
"""Lines of GRUB. Without mitigations, for isolated page tables slow an emulator at every system call."""
INITRAMFS_FILES = {
    "etc/initramfs-tools/conf.d/vm": "MODULES=list\nCOMPRESS=gzip\n",
    "etc/initramfs-tools/modules": "ext4\nvirtio_blk\nvirtio_pci\n",
}
"""Settings of a small initramfs. A general one takes minutes to make and to unpack when emulated."""
TREE_FILES = {
    "etc/fstab": "LABEL=mrc-root / ext4 errors=remount-ro 0 1\n",
    "etc/hostname": "debian\n",
    "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 debian\n::1 localhost ip6-localhost\n",
    "etc/machine-id": "",
    "etc/resolv.conf": "nameserver 127.0.0.53\n",
    "etc/ssh/sshd_config.d/vagrant.conf": "UseDNS no\n",
    "etc/sudoers.d/vagrant": "vagrant ALL=(ALL) NOPASSWD: ALL\n",
    "etc/systemd/network/80-dhcp.network": "[Match]\nName=eth*\n[Network]\nDHCP=yes\n",
}
"""Files that make the tree a machine, and one that Vagrant can use."""


@dataclass(frozen=True)
class HandedOver:
    """Settings of this machine that the box needs too."""

    files: Sequence[Path] = ()
    """Files and folders that lie in the box under the same path, e.g. /etc/pip.conf."""
    variables: Sequence[tuple[str, str]] = ()
    """Environment of every login, e.g. SSL_CERT_FILE."""


def tree_command(release: str, tree: Path, mirror: str, handed_over: HandedOver) -> list[str]:
    """Words of the call of mmdebstrap; apt's settings that the box gets hold there already."""
    settings = [
        str(file)
        for path in handed_over.files
        if Path("/etc/apt/apt.conf.d") in (path, *path.parents)
        for file in (sorted(path.iterdir()) if path.is_dir() else [path])
    ]
    return [
        *("mmdebstrap", "--variant=important", "--format=directory", f"--include={','.join(PACKAGES)}"),
        *("--aptopt=Acquire::Languages none", *(f"--aptopt={file}" for file in settings)),
        *("--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*"),
        # They must lie there before the kernel is installed.
        *(f"--essential-hook={write_hook(name, text)}" for name, text in INITRAMFS_FILES.items()),
        *(RELEASES[release], str(tree)),
        *([mirror] if mirror else []),
    ]


def write_hook(name: str, text: str) -> str:
    """Shell command of a hook of mmdebstrap that writes a file into the tree, which is its first argument."""
    return f'mkdir -p "$(dirname "$1/{name}")"; printf %s {shlex.quote(text)} >"$1/{name}"'


def make_tree(release: str, tree: Path, mirror: str, handed_over: HandedOver, run: Run) -> None:
    """Install Debian and a kernel into a folder."""
    shutil.rmtree(tree, ignore_errors=True)
    run(*tree_command(release, tree, mirror, handed_over))


def finish_tree(tree: Path, handed_over: HandedOver, public_key: Path, run: Run) -> None:
    """Make the tree a machine with a user `vagrant`, and with the settings that are handed over."""
    for name, text in TREE_FILES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # resolv.conf may be a link to a path of this machine.
        path.unlink(missing_ok=True)
        path.write_text(text)
    (tree / "etc/sudoers.d/vagrant").chmod(0o440)
    hand_over(tree, handed_over)
    if (tree / CERTIFICATES).exists():
        run("chroot", str(tree), "update-ca-certificates")
    run("chroot", str(tree), "systemctl", "enable", "systemd-networkd", "systemd-resolved", "ssh")
    run("chroot", str(tree), "useradd", "--create-home", "--shell", "/bin/bash", "vagrant")
    # An account without a password is locked for sshd, unless it has an impossible one.
    run("chroot", str(tree), "usermod", "--password", "*", "vagrant")
    authorize(tree, public_key, run)


def hand_over(tree: Path, handed_over: HandedOver) -> None:
    """Copy this machine's files into the tree, and set the variables there."""
    for path in handed_over.files:
        target = tree / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        else:
            shutil.copy(path, target)
    with (tree / "etc/environment").open("a") as environment:
        environment.writelines(f"{name}={value}\n" for name, value in handed_over.variables)


def authorize(tree: Path, public_key: Path, run: Run) -> None:
    """Let Vagrant's published key in; `vagrant up` replaces it by one of its own."""
    folder = tree / "home/vagrant/.ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(public_key, folder / "authorized_keys")
    run("chroot", str(tree), "chown", "-R", "vagrant:vagrant", "/home/vagrant/.ssh")


def make_disk(tree: Path, disk: Path, run: Run) -> None:
    """Make a disk of the tree, which boots by BIOS."""
    disk.unlink(missing_ok=True)
    with disk.open("wb") as image:
        image.truncate(DISK_GIB << 30)
    table = disk.with_suffix(".table")
    table.write_text(f"label: dos\nstart={START_SECTOR}, type=83, bootable\n")
    run("sfdisk", "--quiet", str(disk), stdin=table)
    size_kib = (DISK_GIB << 20) - START_SECTOR * SECTOR_BYTES // 1024
    # GRUB of Debian 12 does not read file systems with a seed for their checksums.
    features = ("-O", "^metadata_csum_seed", "-L", "mrc-root")
    offset = f"offset={START_SECTOR * SECTOR_BYTES}"
    run("mke2fs", "-q", "-F", "-t", "ext4", *features, "-E", offset, "-d", str(tree), str(disk), f"{size_kib}k")
    lines, core = disk.with_suffix(".grub"), disk.with_suffix(".core")
    lines.write_text(GRUB_LINES)
    options = ("-O", "i386-pc", "-d", str(GRUB), "-p", "/boot/grub", "-c", str(lines), "-o", str(core))
    run("grub-mkimage", *options, *GRUB_MODULES)
    embed_grub(disk, (GRUB / "boot.img").read_bytes(), core.read_bytes())


def embed_grub(disk: Path, first_sector: bytes, core: bytes) -> None:
    """Write GRUB into the gap before the partition: first sector, then the core behind it."""
    if len(core) > (START_SECTOR - 1) * SECTOR_BYTES:
        raise ValueError(f"GRUB takes {len(core)} bytes: more than the gap before the first partition")
    with disk.open("r+b") as image:
        image.write(first_sector[:CODE_BYTES])
        image.seek(SECTOR_BYTES)
        image.write(core)


def pack(disk: Path, box: Path, run: Run) -> None:
    """Pack the disk into a box for vagrant-libvirt."""
    image = disk.with_name("box.img")
    run("qemu-img", "convert", "-O", "qcow2", str(disk), str(image))
    metadata = disk.with_name("metadata.json")
    metadata.write_text(json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": DISK_GIB}))
    with tarfile.open(box, "w") as archive:
        for path in (metadata, image):
            archive.add(path, path.name)
    image.unlink()
