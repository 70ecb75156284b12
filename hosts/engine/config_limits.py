"""Valid values of each key of `Config`: ranges of numbers, lists of words, and the few with a single valid value."""

from __future__ import annotations

from typing import Any, Final

TIMEOUT_UNIT_S: Final = 1.024e-6
"""Retry timeout = this x 2**timeout (§5.11)."""
EXP_FOREVER: Final = 25
"""exp_cnt with the meaning "never give up" (§5.11)."""
PATH_MTUS: Final = (256, 512, 1024, 2048, 4096, 8192)

RANGES: Final[dict[str, tuple[float, float]]] = {
    "udp_dport": (1, 65535),
    "pkey": (0, 0xFFFF),
    "nack_cc_type": (0, 15),
    "trim_len": (0, 9000),
    "wimm_overflow": (1, 255),
    "skip_timer_s": (1e-9, 60),
    "ts_unit_s": (1e-9, 1.0),
    "mpr_packets": (128, 255 * 128),
    "cwnd_bytes": (256, 1 << 31),
    "link_rate_bps": (0, 1e13),
    "base_rtt_s": (0, 60),
    "base_rtt_min_s": (0, 60),
    "path_hops": (1, 64),
    "cc_start": (0.001, 1),
    "incast_penalty": (0, 127),
    "incast_hold_s": (0, 60),
    "max_wimm": (1, 32767),
    "always_skip_marks": (0, 1 << 16),
    "bitmap_packets": (0, 255 * 128),
    "work_slots": (0, 1 << 16),
    "rx_buffer_bytes": (0, 1 << 31),
    "rx_drain_bytes_per_s": (1, 1e12),
    "flow_control_start": (0, 0.99),
    "sack_threshold_bytes": (0, 1 << 24),
    "sack_after_mark": (0, 1 << 16),
    "sack_flush_s": (1e-6, 60),
    "reorder_threshold": (0, 1 << 20),
    "timeout": (1, 24),
    "linear_cnt": (0, 7),
    "exp_cnt": (0, EXP_FOREVER),
    "timeout_rtts": (0, 1000),
    "timeout_ceiling_s": (1e-6, 3600),
    "backup_per_plane": (-1, 1 << 16),
    "max_active": (1, 1 << 16),
    "ev_min_active": (-1, 1 << 16),
    "probe_interval_s": (1e-6, 3600),
    "probe_timeout_s": (1e-6, 3600),
    "probe_ok_count": (1, 1 << 16),
    "probe_ok_max": (1, 1 << 16),
    "probe_forgive_s": (1e-3, 86400),
    "probe_fail_count": (1, 1 << 16),
    "reverse_probe_s": (1e-4, 3600),
    "port_status_repeats": (1, 100),
    "port_status_refresh_s": (1e-3, 3600),
}
"""Lowest and highest value."""
CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "ev_layout": ("L", "H"),
    "pmtu_bytes": PATH_MTUS,
    "oor_action": ("nack", "drop"),
    "skip_mode": ("cursor", "rotation", "timer"),
    "no_receive": ("nak", "unexp_event", "deliver"),
    "dynamic_mpr": (True, False),
    "flow_control": (True, False),
    "flow_control_restore": (True, False),
    "cc_algorithm": ("fixed", "uet-1.0-nscc", "none"),
    "cc_scope": ("destination", "qp"),
    "cc_scaling": ("shape", "uet"),
    "cc_send_rule": ("mrc", "uet"),
    "cc_probe": (True, False),
    "fabric_trims": (True, False),
    "timestamps": (True, False),
    "trim_nack": (True, False),
    "ev_fifo": (True, False),
    "flow_label": ("copied", "inner", "outer"),
    "flow_label_bits": (16, 20),
    "se_bit": (7, 6),
    "eeth_op_shift": (2, 4),
    "dcids": ("packet", "roles", "connection"),
    "ftype_bare": (1, 0),
    "first_msn": (0, 1),
    "first_rqmsn": (0, 1),
    "dma_length": ("message", "remainder"),
    "window_end": ("inclusive", "exclusive"),
    "rcvd_counts": ("udp+40", "payload+40", "payload"),
    "bitmap_base": ("turns", "cack"),
    "clear_bits": ("unknown", "lost"),
    "rtx_echo": (True, False),
    "probe_marked": ("skip", "good"),
    "skip_to_bad": (True, False),
    "loss_rule": ("all", "distance", "time", "ooo"),
    "timeout_phases": ("linear-exponential", "linear", "exponential"),
    "port_bit_base": (0, 1),
    "scheduler_names": ("primer", "tool"),
    "unknown_nack": ("no_resource", "ignore", "fail"),
    "probe_psn": ("zero", "probe_id"),
    "mpr_name": ("MPR_DEST", "MAX_MPR_DEST"),
    "udp_checksum": ("zero", "computed"),
    "trimmed_queue": ("control", "medium"),
    "decap_dscp": ("outer", "inner"),
    "decap_ecn": ("or", "outer", "inner"),
    "revival_slot": ("empty", "own"),
    "all_ports_down": ("charge", "wait"),
}
"""All values, the default first where §12 lists variants."""
ONLY: Final[dict[str, tuple[Any, str]]] = {
    "port_status": (
        "erth",
        "SETH and CC_STATE have no field for a mask of ports, whatever the paper's text says (§5.12, §12 row 26)",
    ),
    "service_time": ("off", "no source tells how it is encoded (§12 row 34), so none could read what we sent"),
    "icrc_scope": (
        "inner",
        "switches shift uSIDs out of the outer address at every hop, so no sum over it arrives right (§3.7, row 40)",
    ),
}
"""Keys of open points one variant of which cannot exist: the value that works, and why no other does."""
WIDTHS: Final[dict[str, tuple[int, int, int]]] = {"srv6_widths": (2, 2, 32), "structured_widths": (1, 24, 24)}
"""Keys that are lists of bit widths: fewest, most, and how many bits in all."""
