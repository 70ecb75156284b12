"""KVM, tried rather than believed."""

import subprocess

from tools.vm import accelerator
from tools.vm.accelerator import EXIT_CODE, choose_accelerator, firmware


def choose(tmp_path, monkeypatch, result):
    """Choose with a device that is there and a QEMU that ends so."""

    def run(*_arguments, **_options):
        if isinstance(result, Exception):
            raise result
        return subprocess.CompletedProcess([], result, "", "qemu: no MSR\nmore\n")

    monkeypatch.setattr(accelerator.subprocess, "run", run)
    return choose_accelerator(tmp_path, device=tmp_path)


def test_without_kvm__it_is_emulated(tmp_path):
    choice = choose_accelerator(tmp_path, device=tmp_path / "kvm")
    assert choice.driver == "qemu" and choice.reason == f"no {tmp_path}/kvm: emulation (TCG)"


def test_a_guest_that_ends_with_its_code__is_kvm(tmp_path, monkeypatch):
    assert choose(tmp_path, monkeypatch, EXIT_CODE).driver == "kvm"


def test_a_device_that_exists_and_does_not_work__is_emulated_with_the_reason(tmp_path, monkeypatch):
    failed = choose(tmp_path, monkeypatch, 134)
    assert failed.driver == "qemu" and "does not work (qemu: no MSR)" in failed.reason
    stuck = choose(tmp_path, monkeypatch, subprocess.TimeoutExpired("qemu", 60))
    assert stuck.driver == "qemu" and "did not end" in stuck.reason


def test_firmware__begins_at_the_reset_vector():
    image = firmware()
    assert len(image) == 65536 and image[0xFFF0:0xFFF5].hex(" ") == "b0 10 e6 f4 f4" and not any(image[:0xFFF0])
