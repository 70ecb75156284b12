"""Results of tools, as an agent gives them."""

from __future__ import annotations

START_ANSWER = {
    "work": 1, "host": "h0", "peer": "h2", "transport": "mrc", "pmtu_bytes": 4096, "planes": 2, "evs": 4,
    "bidirectional": False, "depth": [128, 2], "qps": [{"qpn": 3, "remote_qpn": 0x1234}],
}  # fmt: skip
RESULT = {
    "event": "result", "bytes": 65536, "writes": 1000, "bw_peak_bps": 412.5e6, "bw_average_bps": 398.114e6,
    "msg_rate_pps": 759.34, "retransmitted": 2, "lost": 1, "trimmed": 5, "marked": 7, "plane_bps": [199.1e6, 199.04e6],
}  # fmt: skip


def rule(module) -> str:
    return "-" * len(module.RULE)


def status(t: float, sent: int) -> dict:
    """Return an agent's answer to `status`, with the parts that the tools show."""
    counters = {"sent": sent, "retransmitted": 1, "lost": 0, "timeouts": 0, "trimmed": 0, "bytes_sent": sent * 1000}
    evs = [{"ev": 0, "plane": 0, "state": "good", "active": True, "sent": sent, "lost": 0, "srtt_s": 0.0015}]
    qp = {
        "qpn": 3,
        "remote_qpn": 4,
        "peer": "h2",
        "state": "rts",
        "busy": False,
        "outstanding": 5,
        "error": None,
        "counters": {**counters, "bytes_received": 0},
        "evs": evs,
    }
    port = {"interface": "h0-eth0", "up": True, "tx_packets": sent, "tx_bytes": sent * 1100, "rx_dropped": {"icrc": 2}}
    return {
        "host": "h0",
        "t": t,
        "nic": "fast",
        "up_s": t,
        "cpu_s": t / 4,
        "max_rss_kib": 40960,
        "unclaimed": 0,
        "ports": {"0": {**port, "rx_packets": 7, "rx_bytes": 700}, "1": {"interface": "h0-eth1", "up": False}},
        "qps": [qp],
    }
