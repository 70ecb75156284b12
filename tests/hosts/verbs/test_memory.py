"""Access flags of regions and QPs: what published programs pass is taken, the rest is refused by name."""

import errno

import pytest

from mrc_testbed.hosts.verbs import AccessFlags, QpAttr, QpState, VerbsError
from mrc_testbed.hosts.verbs.memory import REFUSED_ACCESS
from tests.hosts.verbs.verbs_devices import VerbsPair

WRITES = AccessFlags.IBV_ACCESS_LOCAL_WRITE | AccessFlags.IBV_ACCESS_REMOTE_WRITE


def test_access__bits_are_those_of_ibverbs():
    assert [int(flag) for flag in AccessFlags] == [*(1 << bit for bit in range(10)), 1 << 20]


@pytest.mark.parametrize(
    "access",
    [
        AccessFlags.IBV_ACCESS_LOCAL_WRITE,
        WRITES | AccessFlags.IBV_ACCESS_RELAXED_ORDERING,  # OCP's mrc_example
        WRITES | AccessFlags.IBV_ACCESS_REMOTE_READ | AccessFlags.IBV_ACCESS_REMOTE_ATOMIC,  # Microsoft's NCCL plugin
        WRITES | 1 << 25,  # an optional flag that this device has never heard of
    ],
)
def test_access__programs_register_with_what_they_pass_and_peers_write(access):
    pair = VerbsPair()
    target = pair.b.device.reg_mr(bytearray(10), access)
    pair.a.qp.post_send(pair.write(10, remote_addr=target.addr, rkey=target.rkey))
    may_write = bool(access & AccessFlags.IBV_ACCESS_REMOTE_WRITE)
    assert pair.a.cq.wait(timeout_s=1)[0].ok is may_write
    assert target.access & ~AccessFlags.IBV_ACCESS_RELAXED_ORDERING == access & ~(0x3FF << 20)


@pytest.mark.parametrize("flag", REFUSED_ACCESS)
def test_access__what_mrc_has_not_is_refused_by_name(flag):
    pair = VerbsPair(connect=False)
    for call in (
        lambda: pair.a.device.reg_mr(bytearray(4), WRITES | flag),
        lambda: pair.a.qp.modify(QpAttr(qp_state=QpState.INIT, pkey_index=0, qp_access_flags=WRITES | flag)),
    ):
        with pytest.raises(VerbsError, match=f"{flag.name} is not in MRC: ") as error:
            call()
        assert error.value.errno == errno.EOPNOTSUPP
    with pytest.raises(VerbsError, match="reg_mr: access = 1024: must be made of"):
        pair.a.device.reg_mr(bytearray(4), 1 << 10)
