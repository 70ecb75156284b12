"""TrafficControl of embedded switches: gNMI Set and Get.

The leaf names are those of switch/device/traffic_paths.py, which a test compares; this folder may not import that one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import Any

import grpc
from finsy.proto import gnmi, gnmi_grpc

from mrc_testbed.topologies.lab.traffic_control import (
    CABLE_FIGURES,
    DIRECTIONS,
    PORT_FIGURES,
    PPM,
    PRIORITIES,
    QUEUE_FIGURES,
    Cable,
    PortTraffic,
    Queue,
    Setting,
    TrafficControl,
    TrafficError,
)
from mrc_testbed.topologies.plan import Plan

TIMEOUT_S = 10.0
"""Limit for an answer, seconds; while the switches work, the request is repeated."""
UPDATES_PER_SET = 4000
"""A Set of that many is half a MiB; a fabric of 64 switches needs 1,600."""
QUEUE_STATES = (
    "depth-packets",
    "depth-bytes",
    "transmit-pkts",
    "transmit-octets",
    "dropped-pkts",
    "dropped-octets",
    "peak-packets",
)
CABLE_STATES = ("held-pkts", "lost-pkts", "lost-octets", "corrupted-pkts", "dropped-pkts", "dropped-octets")

Leaf = tuple[str, ...]


def leaf_of(setting: Setting) -> Leaf:
    """Names of a setting's path below its interface, as switch/device/traffic_paths.py writes them."""
    if setting.direction is not None:
        return ("impairments", setting.direction, "config", setting.figure)
    if setting.priority is not None:
        return ("output", "queues", f"queue[name={setting.priority}]", "config", setting.figure)
    return ("output", "config", setting.figure)


def path_of(interface: str, leaf: Leaf) -> gnmi.Path:
    """A path from its leaf names; no names: the whole interface."""
    if leaf and leaf[0] == "impairments":
        elems = [gnmi.PathElem(name="interfaces"), gnmi.PathElem(name="interface", key={"name": interface})]
    else:
        elems = [gnmi.PathElem(name="qos"), gnmi.PathElem(name="interfaces")]
        elems.append(gnmi.PathElem(name="interface", key={"interface-id": interface}))
    for name in leaf:
        name, _, key = name.partition("[name=")
        elems.append(gnmi.PathElem(name=name, key={"name": key[:-1]} if key else {}))
    return gnmi.Path(elem=elems)


def leaf_at(prefix: gnmi.Path, path: gnmi.Path) -> tuple[str, Leaf] | None:
    """(interface, leaf names) of an update's path; None for one of another tree."""
    elems = [*prefix.elem, *path.elem]
    interface = ""
    for position, elem in enumerate(elems):
        if elem.name == "interface":
            interface = elem.key.get("interface-id") or elem.key.get("name", "")
            names = [f"{e.name}[name={e.key['name']}]" if "name" in e.key else e.name for e in elems[position + 1 :]]
            return (interface, tuple(names)) if interface else None
    return None


def value_of(value: gnmi.TypedValue) -> Any:
    """A leaf's value, whatever its encoding."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    content = getattr(value, kind)
    if kind in ("json_val", "json_ietf_val"):
        return json.loads(content)
    return content


def set_request(settings: Iterable[Setting]) -> gnmi.SetRequest:
    """Return the Set that makes settings."""
    request = gnmi.SetRequest()
    for setting in settings:
        value = setting.value
        typed_value = gnmi.TypedValue(string_val=value) if isinstance(value, str) else gnmi.TypedValue(uint_val=value)
        request.update.append(gnmi.Update(path=path_of(setting.interface, leaf_of(setting)), val=typed_value))
    return request


def set_settings(address: str, settings: Iterable[Setting]) -> None:
    """Make settings at a server whose switches are of no plan. Raises TrafficError."""
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            gnmi_grpc.gNMIStub(channel).Set(set_request(settings), timeout=TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            raise TrafficError(f"gNMI Set at {address}: {error.details()}") from None


class GnmiTraffic(TrafficControl):
    """`address`: host:port of the server that speaks for all switches of the plan."""

    def __init__(self, plan: Plan, address: str) -> None:
        super().__init__(plan)
        self.address = address
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None

    def _apply(self, settings: list[Setting]) -> None:
        """One Set, which the switches do as a whole or not at all; more than one only beyond UPDATES_PER_SET."""
        for start in range(0, len(settings), UPDATES_PER_SET):
            self._call("Set", set_request(settings[start : start + UPDATES_PER_SET]))

    def on_switch_restart(self, switch: str) -> None:
        """Set nothing: settings belong to the port and its cable, and survive the device.

        See docs/traffic-manager.md.
        """

    def read(self, interface: str) -> PortTraffic:
        self.port(interface)
        leaves = self._leaves(interface)

        def number(leaf: Leaf) -> int:
            return int(leaves.get(leaf) or 0)

        def limits(base: Leaf, names: Iterable[str]) -> dict[str, Any]:
            return {_field(name): number((*base, "config", name)) or None for name in names}

        # A leaf that the switch does not return has its default: 0, "" or, for a limit, none.
        queues = []
        for priority in range(PRIORITIES):
            queue: Leaf = ("output", "queues", f"queue[name={priority}]")
            states = {_field(name): number((*queue, "state", name)) for name in QUEUE_STATES}
            queues.append(Queue(priority, **limits(queue, QUEUE_FIGURES), **states))
        cables: dict[str, Any] = {}
        for direction in DIRECTIONS:
            base: Leaf = ("impairments", direction)
            config = {n: leaves.get((*base, "config", n)) for n in CABLE_FIGURES}
            cables[direction] = Cable(
                delay_s=int(config["delay-us"] or 0) / 1e6,
                loss=int(config["loss-ppm"] or 0) / PPM,
                loss_pattern=str(config["loss-pattern"] or ""),
                corruption=int(config["corrupt-ppm"] or 0) / PPM,
                corrupt_pattern=str(config["corrupt-pattern"] or ""),
                seed=int(config["seed"] or 0),
                **{_field(n): number((*base, "state", n)) for n in CABLE_STATES},
            )
        return PortTraffic(interface, **limits(("output",), PORT_FIGURES), queues=tuple(queues), **cables)

    def _leaves(self, interface: str) -> dict[Leaf, Any]:
        request = gnmi.GetRequest(
            path=[path_of(interface, ()), path_of(interface, ("impairments",))], encoding=gnmi.Encoding.PROTO
        )
        out: dict[Leaf, Any] = {}
        for notification in self._call("Get", request).notification:
            for update in notification.update:
                location = leaf_at(notification.prefix, update.path)
                if location is not None and location[0] == interface:
                    out[location[1]] = value_of(update.val)
        return out

    def _call(self, method: str, request: Any) -> Any:
        with self._lock:
            if self.death_reason is not None:
                raise TrafficError(f"gNMI {method}: {self.death_reason}")
            if self._channel is None:
                options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_http_proxy", 0)]
                self._channel = grpc.insecure_channel(self.address, options)
            stub = gnmi_grpc.gNMIStub(self._channel)
        try:
            return self._answer(getattr(stub, method), request)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed under the call
            if self.death_reason is not None:
                raise TrafficError(f"gNMI {method}: {self.death_reason}") from None
            if isinstance(error, ValueError):
                raise
            code, text = error.code(), error.details()
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                text = f"no answer in {TIMEOUT_S:g} s: do the switches run?"
            raise TrafficError(f"gNMI {method} at {self.address}: {text}") from None

    def _answer(self, call: Any, request: Any) -> Any:
        """The answer, waited for while the switches work; Set and Get may be asked again."""
        while True:
            try:
                return call(request, timeout=TIMEOUT_S, wait_for_ready=True)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or self.death_reason or not self.gets_on():
                    raise

    def close(self) -> None:
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


def _field(leaf: str) -> str:
    return leaf.replace("-", "_")
