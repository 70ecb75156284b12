"""Run the life of a VM: up, demo, cut, test, reload, second provisioning, destroy."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.vm import box
from tools.vm.accelerator import Accelerator
from tools.vm.libvirt import PrivateLibvirt

ROOT = Path(__file__).resolve().parents[2]
EMULATED_S = 4 * 3600
"""Vagrant's limits for a VM that is emulated beside other work: boot, connection, halt."""
USER_VAGRANTFILE = """\
Vagrant.configure("2") do |config|
  config.vm.provider("libvirt") do |vm|
    vm.driver, vm.cpu_mode = "{driver}", "{cpu_mode}"
  end
end
"""
EMULATED_VAGRANTFILE = """\
Vagrant.configure("2") do |config|
  config.vm.boot_timeout = config.vm.graceful_halt_timeout = config.ssh.connect_timeout = {limit_s}
  config.vm.provider("libvirt") do |vm|
    vm.driver, vm.cpu_mode, vm.cpu_model = "{driver}", "{cpu_mode}", "{cpu_model}"
    # The guest's clock goes by its instructions, one a nanosecond, so that none of its deadlines counts another's work.
    %w[-icount shift=0 -rtc base=utc,clock=vm].each {{ |word| vm.qemuargs value: word }}
  end
end
"""
SETTINGS_OF_OURS = ("MRC_CPUS", "MRC_MEMORY", "MRC_BMV2")
"""Variables of the Vagrantfile that hold here too."""
CUT = """\
set -eux
sudo mrc down || true
sudo mrc up -d --planes 2 --hosts-per-rack 1
sudo mrc send h0 h1 8M
sudo mrc link p1-t0-0 p1-t1-1 down
sudo mrc wait
sudo mrc faults | tee /tmp/faults
grep 'T0-T1 link p1-t0-0 p1-t1-1 down' /tmp/faults
sudo mrc heal
sudo mrc down
"""
RESILIENCE = """\
set -eu
cd mrc-testbed
test=tests/resilience/test_links.py::test_t0_t1_cut__one_ev_leaves_and_returns
sudo .venv/bin/python -m pytest -q --timeout 0 $test
"""
MARK = """\
set -eu
cd mrc-testbed
mkdir -p notes
echo 'a note of the user' | tee notes/own.md >scenarios/own.yaml
"""
"""Files of the user's own, in a folder of the checkout and in a new one."""
CHECK_MARKS = """\
set -eu
cd mrc-testbed
for file in notes/own.md scenarios/own.yaml; do
    grep -qx 'a note of the user' $file || { echo "lost: ~/mrc-testbed/$file"; exit 1; }
done
echo 'both own files are there'
"""


class StepError(Exception):
    """A command of a step failed."""


@dataclass
class Vm:
    """A VM of one release, and the folder build/vm/RELEASE of its box, logs and record."""

    release: str
    folder: Path
    libvirt: PrivateLibvirt
    accelerator: Accelerator
    vagrant_files: Path
    """Vagrant's own gem, whose published keys every box lets in."""
    mirror: str = ""
    handed_over: box.HandedOver = field(default_factory=box.HandedOver)
    step: str = ""
    """Step whose log gets the output of commands."""

    @property
    def log(self) -> Path:
        return self.folder / f"{self.step}.log"

    def run(self, *words: str, stdin: Path | None = None, environment: dict[str, str] | None = None) -> None:
        """Run a command to its end, whatever time it takes, with its output in the step's log."""
        with self.log.open("a") as log, (stdin or Path(os.devnull)).open("rb") as source:
            print("+", *words, file=log, flush=True)
            process = subprocess.run(words, stdin=source, stdout=log, stderr=log, env=environment, cwd=ROOT)
        if process.returncode:
            raise StepError(f"{' '.join(words[:3])} ended with {process.returncode}: {self.log}")

    def vagrant(self, *words: str) -> None:
        """Run Vagrant inside, with home and state of its own."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        (home / "Vagrantfile").write_text(user_vagrantfile(self.accelerator))
        # Variables of the Vagrantfile from outside could name another box.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MRC_", "VAGRANT_"))}
        environment |= {name: os.environ[name] for name in SETTINGS_OF_OURS if name in os.environ}
        environment |= {
            # nsenter begins at the root of the file system.
            "VAGRANT_CWD": str(ROOT),
            "VAGRANT_HOME": str(home),
            "VAGRANT_DOTFILE_PATH": str(self.folder / "state"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "VAGRANT_DEFAULT_PROVIDER": "libvirt",
            "MRC_RELEASE": self.release,
            "MRC_BOX": f"mrc/{self.release}",
        }
        self.run(*self.libvirt.enter(), "vagrant", *words, environment=environment)

    def in_vm(self, script: str) -> None:
        """Run a script as the user of the VM, as a stranger does."""
        self.vagrant("ssh", "--no-tty", "-c", script)

    def make_box(self) -> None:
        """Make tree, disk and box."""
        tree, disk = self.folder / "tree", self.folder / "disk.raw"
        box.make_tree(self.release, tree, self.mirror, self.handed_over, self.run)
        box.finish_tree(tree, self.handed_over, self.vagrant_files / "keys/vagrant.pub", self.run)
        box.make_disk(tree, disk, self.run)
        box.pack(disk, self.folder / "libvirt.box", self.run)
        disk.unlink()

    def bring_up(self) -> None:
        """Boot and provision; also whatever a former try left is destroyed."""
        self.vagrant("destroy", "--force")
        self.vagrant("box", "add", "--force", "--name", f"mrc/{self.release}", str(self.folder / "libvirt.box"))
        self.vagrant("up", "--no-destroy-on-error")

    def demo(self) -> None:
        """Run the demonstration, as the documents do."""
        self.in_vm("sudo mrc demo")

    def cut(self) -> None:
        """Cut a cable under a transfer by hand; it must arrive, and the fault be named."""
        self.in_vm(CUT)

    def resilience(self) -> None:
        """Run one resilience test."""
        self.in_vm(RESILIENCE)

    def reload(self) -> None:
        """Boot again."""
        self.vagrant("reload")

    def provision(self) -> None:
        """Provision again; files of the user's own must stay."""
        self.in_vm(MARK)
        self.vagrant("provision")
        self.in_vm(CHECK_MARKS)

    def destroy(self) -> None:
        """Destroy the VM; libvirt must know none after it."""
        self.vagrant("destroy", "--force")
        if machines := self.libvirt.machines():
            raise StepError(f"vagrant destroy left {', '.join(machines)}: {self.log}")


STEPS: dict[str, Callable[[Vm], None]] = {
    "box": Vm.make_box,
    "up": Vm.bring_up,
    "demo": Vm.demo,
    "cut": Vm.cut,
    "resilience": Vm.resilience,
    "reload": Vm.reload,
    "demo-again": Vm.demo,
    "provision": Vm.provision,
    "destroy": Vm.destroy,
}
AFTER_UP = tuple(STEPS)[2:]
"""Steps that need the VM; it ends with its libvirtd."""


def user_vagrantfile(accelerator: Accelerator) -> str:
    """Text of a user's own Vagrantfile, which holds beside the checkout's: accelerator, and patience."""
    template = EMULATED_VAGRANTFILE if accelerator.is_emulation else USER_VAGRANTFILE
    return template.format(limit_s=EMULATED_S, **asdict(accelerator))


@dataclass
class StepRecord:
    """Seconds of each step that passed, kept in a file, so that a later call goes on from there."""

    path: Path

    def durations_s(self) -> dict[str, float]:
        """Seconds by step."""
        try:
            return dict(json.loads(self.path.read_text()))
        except FileNotFoundError:
            return {}

    def keep(self, durations_s: dict[str, float]) -> None:
        """Replace the record."""
        self.path.write_text(json.dumps(durations_s))


def steps_to_run(durations_s: dict[str, float], first: str | None, is_running: bool) -> Sequence[str]:
    """Choose the steps that are due: all from `first` on, else those that have not passed.

    Without a running libvirtd there is no VM, so that it comes up anew; its box stays.
    """
    steps = tuple(STEPS)
    if first is not None:
        return steps[steps.index(first) :]
    if "destroy" in durations_s:
        return steps[steps.index("up") :]
    due = [step for step in steps if step not in durations_s]
    if not is_running and any(step in due for step in AFTER_UP):
        return [step for step in steps if step in due or step == "up"]
    return due


def live(vm: Vm, steps: Sequence[str], record: StepRecord, report: Callable[[str], None]) -> bool:
    """Run the steps, print each with its time; a step that fails ends the rest, for they build on it."""
    durations_s = {step: seconds for step, seconds in record.durations_s().items() if step not in steps}
    for step in STEPS:
        if step not in steps:
            reason = f"passed before ({durations_s[step]:.0f} s)" if step in durations_s else "not run: --from"
            report(f"{vm.release}  {step:<11}  {reason}")
            continue
        vm.step = step
        vm.log.unlink(missing_ok=True)
        begin = time.monotonic()
        try:
            STEPS[step](vm)
        except StepError as error:
            report(f"{vm.release}  {step:<11}  failed after {time.monotonic() - begin:.0f} s: {error}")
            return False
        durations_s[step] = time.monotonic() - begin
        record.keep(durations_s)
        report(f"{vm.release}  {step:<11}  ok {durations_s[step]:8.0f} s  {vm.log.relative_to(ROOT)}")
    return True
