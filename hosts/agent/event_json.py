"""Engine events as lines for watchers: (name, fields).

Every line also has `t`, the engine's time of the event.

    completion   qpn, wr_id, status, ok, length            lost       qpn, psn, ev, plane, uplink, cause, sent_at
    ev           qpn, peer, ev, plane, uplink, from, to, cause          ev_replaced  qpn, ev, by, plane
                 (states in words; GOOD <-> SKIP comes with each mark or trim and is counted, not sent: `health`)
    plane        peer (null = our own port), plane, up     qp_error   qpn, peer, status, detail
    write_imm    qpn, imm, length, recv_id                 ev_probe   request_id, peer, ev, plane, rtt_s
    recv_flushed qpn, recv_id

The agent adds `port` (plane, interface, up, admin_up), `transfer` and `progress` (hosts/traffic/file_transfer.py).

`uplink` is EV[7:0], which is the T0 uplink when the peer is in another rack; null in modes where EVs name no path. A
watcher subscribes to some of them with {"op": "watch", "events": ["ev", "port"]}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrc_testbed.hosts.engine.events import (
    Completion,
    EvChanged,
    Event,
    EvProbeResult,
    EvReplaced,
    PacketLost,
    PlaneChanged,
    QpError,
    ReceiveFlushed,
    Status,
    WriteImmReceived,
)
from mrc_testbed.topologies.plan import ev_uplink


def event_name(event: Event) -> str:
    """Return the name under which watchers know an engine event."""
    return _NAMES[type(event)]


def event_json(event: Event, ev_is_path: bool = True) -> dict[str, Any]:
    """Return the fields of an engine event; `uplink` is null unless EVs name their path."""
    fields = _FIELDS[type(event)](event)
    if not ev_is_path and "uplink" in fields:
        fields["uplink"] = None
    return fields


def _completion(e: Completion) -> dict[str, Any]:
    ok = e.status is Status.SUCCESS
    return {
        "qpn": e.qpn,
        "wr_id": e.wr_id,
        "status": e.status.value,
        "ok": ok,
        "length": e.length,
    }


def _ev(e: EvChanged) -> dict[str, Any]:
    return {
        "qpn": e.qpn,
        "peer": e.peer,
        "ev": e.ev,
        "plane": e.plane,
        "uplink": ev_uplink(e.ev),
        "from": e.old_state.name.lower(),
        "to": e.new_state.name.lower(),
        "cause": e.cause,
    }


def _ev_replaced(e: EvReplaced) -> dict[str, Any]:
    return {"qpn": e.qpn, "ev": e.ev, "by": e.substitute, "plane": e.plane}


def _lost(e: PacketLost) -> dict[str, Any]:
    return {
        "qpn": e.qpn,
        "psn": e.psn,
        "ev": e.ev,
        "plane": e.plane,
        "uplink": ev_uplink(e.ev),
        "cause": e.cause.value,
        "sent_at": e.sent_at,
    }


def _write_imm(e: WriteImmReceived) -> dict[str, Any]:
    return {"qpn": e.qpn, "imm": e.imm, "length": e.length, "recv_id": e.recv_id}


def _recv_flushed(e: ReceiveFlushed) -> dict[str, Any]:
    return {"qpn": e.qpn, "recv_id": e.recv_id}


def _plane(e: PlaneChanged) -> dict[str, Any]:
    return {"peer": e.peer, "plane": e.plane, "up": e.up}


def _qp_error(e: QpError) -> dict[str, Any]:
    return {"qpn": e.qpn, "peer": e.peer, "status": e.status.value, "detail": e.detail}


def _ev_probe(e: EvProbeResult) -> dict[str, Any]:
    return {
        "request_id": e.request_id,
        "peer": e.peer,
        "ev": e.ev,
        "plane": e.plane,
        "rtt_s": e.rtt_s,
        "back_lost": e.back_lost,
    }


_FIELDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Completion: _completion,
    EvChanged: _ev,
    EvReplaced: _ev_replaced,
    PacketLost: _lost,
    WriteImmReceived: _write_imm,
    ReceiveFlushed: _recv_flushed,
    PlaneChanged: _plane,
    QpError: _qp_error,
    EvProbeResult: _ev_probe,
}
_NAMES: dict[type, str] = {
    Completion: "completion",
    EvChanged: "ev",
    EvReplaced: "ev_replaced",
    PacketLost: "lost",
    WriteImmReceived: "write_imm",
    ReceiveFlushed: "recv_flushed",
    PlaneChanged: "plane",
    QpError: "qp_error",
    EvProbeResult: "ev_probe",
}
