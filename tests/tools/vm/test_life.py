"""Steps of `make vm`: which are due, and what is said of them; no VM comes up here."""

import pytest

from tools.vm import life
from tools.vm.accelerator import Accelerator, emulation
from tools.vm.libvirt import PrivateLibvirt
from tools.vm.life import STEPS, StepError, StepRecord, Vm, live, steps_to_run, user_vagrantfile

STEP_NAMES = list(STEPS)


@pytest.mark.parametrize(
    ("steps_before", "first", "is_running", "due"),
    [
        ((), None, False, STEP_NAMES),
        (("box",), None, False, STEP_NAMES[1:]),
        (("box", "up", "demo"), None, True, STEP_NAMES[3:]),
        (("box", "up", "demo"), None, False, ["up", *STEP_NAMES[3:]]),
        (("box", "up", "demo"), "demo", True, STEP_NAMES[2:]),
        (STEP_NAMES, None, False, STEP_NAMES[1:]),
    ],
)
def test_steps_to_run(steps_before, first, is_running, due):
    assert list(steps_to_run(dict.fromkeys(steps_before, 1.0), first, is_running)) == due


def test_user_vagrantfile__an_emulated_guest_has_a_model_patience_and_a_clock_of_its_instructions():
    text = user_vagrantfile(emulation(""))
    assert '= "qemu", "custom", "Nehalem"' in text and "boot_timeout" in text
    assert "-icount shift=0" in text and ".each { |word|" in text


def test_user_vagrantfile__kvm_has_none_of_them():
    text = user_vagrantfile(Accelerator("kvm", "host-passthrough", "", ""))
    assert '= "kvm", "host-passthrough"\n' in text
    assert not any(word in text for word in ("icount", "timeout", "cpu_model"))


@pytest.fixture
def vm(tmp_path, monkeypatch):
    monkeypatch.setattr(life, "ROOT", tmp_path)
    return Vm("debian-12", tmp_path, PrivateLibvirt(tmp_path), emulation(""), tmp_path)


def test_live__a_step_that_fails_ends_the_rest_and_the_record_keeps_those_before(vm, tmp_path, monkeypatch):
    def fail(_vm):
        raise StepError("no box")

    monkeypatch.setattr(life, "STEPS", {"box": lambda vm: vm.run("true"), "up": fail, "demo": fail})
    record, lines = StepRecord(tmp_path / "passed.json"), []
    assert not live(vm, ["box", "up", "demo"], record, lines.append)
    assert list(record.durations_s()) == ["box"]
    assert [line.split()[1:3] for line in lines] == [["box", "ok"], ["up", "failed"]]
    assert not live(vm, ["up", "demo"], record, lines.append)
    assert lines[2].split()[1:4] == ["box", "passed", "before"]


def test_run__names_the_log_of_a_command_that_fails(vm, tmp_path):
    vm.step = "up"
    with pytest.raises(StepError, match=r"bash -c exit 3 ended with 3: .*up\.log"):
        vm.run("bash", "-c", "exit 3")
    assert (tmp_path / "up.log").read_text() == "+ bash -c exit 3\n"


def test_vagrant__reads_the_checkout_although_nsenter_begins_at_the_root(vm, tmp_path, monkeypatch):
    report = ["env", "--chdir=/", "sh", "-c", 'echo "$0 $1: $VAGRANT_CWD $MRC_RELEASE $MRC_UEFI"']
    monkeypatch.setattr(PrivateLibvirt, "enter", lambda _: report)
    monkeypatch.setenv("MRC_UEFI", "foreign")
    vm.step = "up"
    vm.vagrant("up")
    assert vm.log.read_text().splitlines()[-1] == f"vagrant up: {tmp_path} debian-12 "


def test_own_files__are_checked_as_they_are_marked(tmp_path):
    """The scripts of the VM, run here: marks that are there pass, a lost one is named."""
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    (tmp_path / "mrc-testbed" / "scenarios").mkdir(parents=True)

    def run(script):
        return life.subprocess.run(["bash", "-c", script], cwd=tmp_path, env=home, capture_output=True, text=True)

    assert run(life.MARK).returncode == 0 and run(life.CHECK_MARKS).returncode == 0
    (tmp_path / "mrc-testbed" / "notes" / "own.md").unlink()
    assert run(life.CHECK_MARKS).stdout == "lost: ~/mrc-testbed/notes/own.md\n"
