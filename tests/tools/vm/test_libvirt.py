"""The pids that `make vm` ends: its own alone."""

import os

from tools.vm.libvirt import PrivateLibvirt


def test_holder__a_pid_that_is_another_process_by_now_is_none(tmp_path):
    libvirt = PrivateLibvirt(tmp_path)
    assert libvirt.holder() is None
    for name in ("holder.pid", "slirp.pid"):
        (tmp_path / name).write_text(str(os.getpid()))
    assert libvirt.holder() is None
    libvirt.stop()  # and does not end this process
    assert not any(tmp_path.iterdir())
