"""The exchange by which two ends of the verbs find each other.

QpInfo as JSON, meeting by name, a peer that sends invalid messages.
"""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

import mrc_testbed.hosts.verbs
from mrc_testbed.hosts.verbs import PeerError, QpInfo, SendWR, VirtualWire, local_info
from tests.hosts.verbs.verbs_devices import VerbsPair


def test_info__survives_json_and_refuses_nonsense():
    pair = VerbsPair()
    info = local_info(pair.a.qp, pair.a.mr)
    assert QpInfo.from_json(info.to_json()) == info
    bad_documents = [
        None,
        [],
        {},
        {**info.to_json(), "more": 1},
        {**info.to_json(), "qpn": 2},
        {**info.to_json(), "psn": "1"},
    ]
    bad_documents += [
        {**info.to_json(), "gid": ""},
        {**info.to_json(), "path_mtu": 1500},
        {**info.to_json(), "mpr": True},
    ]
    for data in bad_documents:
        with pytest.raises(PeerError):
            QpInfo.from_json(data)


def test_wire__names_are_taken_once():
    wire = VirtualWire()
    wire.open("a")
    with pytest.raises(ValueError, match="a is on the wire already"):
        wire.open("a")


def test_meet__two_ends_find_each_other_in_any_order(tmp_path):
    pair = VerbsPair(connect=False)
    infos = [local_info(pair.a.qp), local_info(pair.b.qp)]
    path = tmp_path / "meeting.sock"
    with ThreadPoolExecutor(2) as pool:
        dial_task = pool.submit(mrc_testbed.hosts.verbs.meet, path, infos[0], listen=False)
        listen_task = pool.submit(mrc_testbed.hosts.verbs.meet, path, infos[1], listen=True)
        assert (dial_task.result(), listen_task.result()) == (infos[1], infos[0])
    assert not path.exists()
    with pytest.raises(PeerError, match="waited 0 s at most"):
        mrc_testbed.hosts.verbs.meet(path, infos[0], listen=False, timeout_s=0)


@pytest.mark.parametrize(
    "line, words",
    [
        (b"", "closed the connection"),
        (b"{", "closed the connection"),
        (b"nonsense\n", "sent no JSON"),
        (b"[1]\n", "has the keys"),
        (b"\xff\xfe\n", "sent no JSON"),
        (b"x" * (1 << 17), "without a line end"),
    ],
)
def test_swap__a_peer_that_talks_nonsense(line, words):
    local_socket, peer_socket = socket.socketpair()
    with local_socket, peer_socket, ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: (peer_socket.sendall(line), peer_socket.shutdown(socket.SHUT_WR)))
        with pytest.raises(PeerError, match=words):
            mrc_testbed.hosts.verbs.swap(local_socket, local_info(VerbsPair(connect=False).a.qp))
        local_socket.close()


def test_connect_over__both_ends_are_up_before_either_sends():
    """Two devices, two threads: no packet finds an end that is not ready, so none is lost."""
    pair = VerbsPair(connect=False)
    local_socket, peer_socket = socket.socketpair()
    with local_socket, peer_socket, ThreadPoolExecutor(1) as pool:
        peer_task = pool.submit(mrc_testbed.hosts.verbs.connect_over, peer_socket, pair.b.qp, pair.b.mr)
        info = mrc_testbed.hosts.verbs.connect_over(local_socket, pair.a.qp, pair.a.mr)
        assert peer_task.result().rkey == pair.a.mr.rkey
    pair.a.qp.post_send(SendWR(1, sg_list=[pair.a.mr.sge(0, 2000)], remote_addr=info.addr, rkey=info.rkey))
    assert pair.a.cq.wait(timeout_s=1)[0].ok
    assert pair.a.qp.counters.lost == 0
