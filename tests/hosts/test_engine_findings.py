"""What simulation testing and fuzzing found, each as the smallest conversation that shows it."""

from __future__ import annotations

from tests.hosts.pair import Pair


def test_uet_send_rule__a_window_below_a_packet_still_sends() -> None:
    pair = Pair(config={"cc_algorithm": "uet-1.0-nscc", "cc_send_rule": "uet", "cwnd_bytes": 256})
    content = pair.bytes(1000)
    pair.write(content)
    pair.run_until_quiet()
    assert pair.memory[:1000] == content and pair.completions() == [(1, "SUCCESS")]


def test_error__a_peer_without_any_path_learns_of_it_from_its_probes() -> None:
    keys = {"ev_min_active": 0, "probe_fail_count": 1, "probe_interval_s": 0.05}
    pair = Pair(planes=1, uplinks=1, config={**keys, "exp_cnt": 25}, config_b={"exp_cnt": 1, "linear_cnt": 1})
    back = pair.a.endpoint.register(bytearray(100))
    evs = [ev for ev, _ in pair.evs]
    pair.cut(*evs)
    pair.write(b"x")
    pair.b.qp.post_write(b"y", back.va, back.rkey, now=0.0)
    pair.run(1.0)
    assert pair.b.qp.state.value == "error" and not any(row["active"] for row in pair.a.qp.ev_states())
    pair.cut(*evs, cut=False)
    pair.run(1.0)
    assert pair.completions() == [(1, "REMOTE_ACCESS")]
