"""What simulation testing and fuzzing found, each as the smallest conversation that shows it."""

from __future__ import annotations

from tests.hosts.pair import Pair


def test_uet_send_rule__a_window_below_a_packet_still_sends() -> None:
    pair = Pair(config={"cc_algorithm": "uet-1.0-nscc", "cc_send_rule": "uet", "cwnd_bytes": 256})
    content = pair.bytes(1000)
    pair.write(content)
    pair.run_until_quiet()
    assert pair.memory[:1000] == content and pair.completions() == [(1, "SUCCESS")]
