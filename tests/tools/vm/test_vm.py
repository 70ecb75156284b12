"""Command line of `make vm`: what is missing, and arguments."""

import pytest

from tools.vm import __main__ as vm


@pytest.fixture
def gems(tmp_path):
    for name in ("gems/vagrant-2.3.4/keys", "specifications"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "specifications" / "vagrant-libvirt-0.11.2.gemspec").touch()
    (tmp_path / "boot.img").touch()
    return tmp_path


def reasons(gems, is_root=True, machine="x86_64", lacks=()):
    return vm.skip_reasons(is_root, machine, lambda program: None if program in lacks else program, gems, gems)


def test_skip_reasons__none_where_all_is_at_hand(gems):
    assert reasons(gems) == []


def test_skip_reasons__packages_of_what_is_missing_in_one_command(gems):
    (gems / "specifications" / "vagrant-libvirt-0.11.2.gemspec").unlink()
    (gems / "boot.img").unlink()
    (reason,) = reasons(gems, lacks=("libvirtd", "qemu-img"))
    assert "no libvirtd, qemu-img on PATH" in reason
    assert reason.endswith(
        "apt-get install --no-install-recommends grub-pc-bin libvirt-daemon-system qemu-utils vagrant-libvirt"
    )


def test_skip_reasons__no_root_and_another_machine(gems):
    architecture, rights = reasons(gems, is_root=False, machine="aarch64")
    assert "aarch64" in architecture and rights.startswith("not root")


def test_main__says_why_it_skips_and_fails_nothing(monkeypatch, capsys):
    monkeypatch.setattr(vm, "skip_reasons", lambda *_: ["not root. Cure: sudo make vm"])
    assert vm.main([]) == 0
    assert capsys.readouterr().out == "vm: skipped: not root. Cure: sudo make vm\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["debian-9"], "no box of debian-9 (has: debian-12, debian-13)"),
        (["--copy", "etc/pip.conf"], "not an absolute path of a file or folder: etc/pip.conf"),
        (["--copy", "/no/such"], "not an absolute path of a file or folder: /no/such"),
        (["--variable", "NO_SUCH"], "not set here: NO_SUCH. Cure: --variable NO_SUCH=VALUE"),
        (["--from", "beginning"], "invalid choice: 'beginning'"),
    ],
)
def test_main__refuses(arguments, error, capsys):
    with pytest.raises(SystemExit):
        vm.main(arguments)
    assert error in capsys.readouterr().err


def test_variable__is_taken_from_here_or_given(monkeypatch):
    monkeypatch.setenv("OWN", "a=b")
    assert vm.variable("OWN") == ("OWN", "a=b") and vm.variable("OTHER=") == ("OTHER", "")
