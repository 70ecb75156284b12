"""`make vm`: make a Debian box, and live through the life of a VM of the Vagrantfile.

`make vm RELEASE=debian-13`, or `python -m tools.vm` with the options of `--help`

Nothing is skipped silently: what is missing is named with its package. The VM runs beside a libvirtd of its own
(`tools/vm/libvirt.py`), with KVM where that runs a guest, else emulated: then it takes hours on a busy machine. Logs,
boxes and the record of steps lie in build/vm; the same call again goes on behind the last step that passed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mrc_testbed.errors import EXIT_INTERRUPTED
from tools.vm.accelerator import EMULATOR, choose_accelerator
from tools.vm.box import GRUB, RELEASES, HandedOver
from tools.vm.libvirt import LibvirtError, PrivateLibvirt
from tools.vm.life import ROOT, STEPS, StepRecord, Vm, live, steps_to_run

FOLDER = ROOT / "build" / "vm"
EXIT_SKIPPED = 0
PACKAGE_OF = {
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "iptables": "iptables",
    "grub-mkimage": "grub-common",
    "libvirtd": "libvirt-daemon-system",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
    "qemu-img": "qemu-utils",
    EMULATOR: "qemu-system-x86",
    "rsync": "rsync",
    "sfdisk": "fdisk",
    "slirp4netns": "slirp4netns",
    "ssh": "openssh-client",
    "vagrant": "vagrant",
    "virsh": "libvirt-clients",
}
"""Program that a step calls -> Debian's and Ubuntu's package of it."""
GEMS = Path("/usr/share/rubygems-integration/all")
PLUGINS = {"specifications/vagrant-libvirt-*.gemspec": "vagrant-libvirt", "gems/vagrant-[0-9]*/keys": "vagrant"}
"""Files of Debian's Ruby packages -> package."""


def skip_reasons(
    is_root: bool,
    machine: str,
    find_program: Callable[[str], str | None] = shutil.which,
    gems: Path = GEMS,
    grub: Path = GRUB,
) -> list[str]:
    """Say what keeps the VM from being made here; nothing when all is at hand."""
    reasons = []
    if machine != "x86_64":
        reasons.append(f"the box is one for x86_64, and this machine is {machine}")
    if not is_root:
        reasons.append("not root: mmdebstrap, namespaces and libvirtd need it. Cure: sudo make vm")
    programs = [program for program in PACKAGE_OF if find_program(program) is None]
    packages = {PACKAGE_OF[program] for program in programs}
    packages |= {package for pattern, package in PLUGINS.items() if not any(gems.glob(pattern))}
    if not (grub / "boot.img").exists():
        packages.add("grub-pc-bin")
    if packages:
        lacks = f" (no {', '.join(programs)} on PATH)" if programs else ""
        cure = f"apt-get install --no-install-recommends {' '.join(sorted(packages))}"
        reasons.append(f"packages are missing{lacks}. Cure: {cure}")
    return reasons


def absolute_path(text: str) -> Path:
    """Read a path that exists on this machine and has a place in the box."""
    path = Path(text)
    if not path.is_absolute() or not path.exists():
        raise argparse.ArgumentTypeError(f"not an absolute path of a file or folder: {text}")
    return path


def variable(text: str) -> tuple[str, str]:
    """Read NAME=VALUE, or a NAME whose value here is taken."""
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise argparse.ArgumentTypeError(f"not set here: {name}. Cure: --variable {name}=VALUE")
    return name, value if equals else os.environ[name]


def parser() -> argparse.ArgumentParser:
    """Make the command line."""
    words = argparse.ArgumentParser(prog="python -m tools.vm", description=(__doc__ or "").splitlines()[0])
    words.add_argument("releases", nargs="*", metavar="RELEASE", help=f"default {next(iter(RELEASES))}")
    words.add_argument("--from", dest="first", choices=tuple(STEPS), help="go on from this step, whatever has passed")
    words.add_argument("--mirror", default="", help="mirror, or file of sources, for mmdebstrap and the box")
    words.add_argument(
        "--copy", type=absolute_path, action="append", default=[], help="file or folder of this machine for the box"
    )
    words.add_argument(
        "--variable", type=variable, action="append", default=[], help="variable of every login: NAME, or NAME=VALUE"
    )
    words.add_argument("--keep", action="store_true", help="leave libvirtd, and the VM of a step that failed, running")
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 1 when a step failed, 0 also when the VM is skipped."""
    words = parser()
    options = words.parse_args(arguments)
    releases = options.releases or [next(iter(RELEASES))]
    if unknown := [release for release in releases if release not in RELEASES]:
        words.error(f"no box of {', '.join(unknown)} (has: {', '.join(RELEASES)})")
    if reasons := skip_reasons(os.geteuid() == 0, platform.machine()):
        print("\n".join(f"vm: skipped: {reason}" for reason in reasons))
        return EXIT_SKIPPED
    FOLDER.mkdir(parents=True, exist_ok=True)
    accelerator = choose_accelerator(FOLDER)
    print(f"vm: {accelerator.reason}", flush=True)
    vagrant_files = next(GEMS.glob("gems/vagrant-[0-9]*"))
    handed_over = HandedOver(options.copy, options.variable)
    failed_releases = []
    for release in releases:
        folder = FOLDER / release
        folder.mkdir(exist_ok=True)
        libvirt = PrivateLibvirt(folder)
        record = StepRecord(folder / "passed.json")
        # The VM of an earlier call is only there while its libvirtd is.
        steps = steps_to_run(record.durations_s(), options.first, libvirt.holder() is not None)
        vm = Vm(release, folder, libvirt, accelerator, vagrant_files, options.mirror, handed_over)
        try:
            libvirt.start()
            if not live(vm, steps, record, lambda line: print(line, flush=True)):
                failed_releases.append(release)
        except LibvirtError as error:
            print(f"vm: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        finally:
            if options.keep:
                print(f"vm: libvirtd of {release} runs on; inside it is: {' '.join(libvirt.enter())} bash")
            else:
                libvirt.stop()
    return 1 if failed_releases else 0


if __name__ == "__main__":
    sys.exit(main())
