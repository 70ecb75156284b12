"""Errors of the messenger before a fabric is there; messages themselves: test_process_group.py."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE
from mrc_testbed.torch.messenger import Messenger, MessengerError


def test_messenger__outside_a_fabric_names_the_cure(monkeypatch):
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    with pytest.raises(MessengerError, match="start it by `mrc exec HOST"):
        Messenger(2, 0, lambda _peer, hello: hello)
