"""gNMI 0.10 server for the state of interfaces: Capabilities, Get and Subscribe (ONCE, POLL, STREAM).

Served tree, with the names of openconfig-interfaces::

    /interfaces/interface[name=IF]/name
    /interfaces/interface[name=IF]/state/{name,ifindex,admin-status,oper-status,last-change,mtu}
    /interfaces/interface[name=IF]/state/counters/{in-pkts,out-pkts,...,carrier-transitions}

`name` may be `*` or absent; a path may stop at any level or have `*` for a name. A device name in `prefix.target`
narrows everything to its ports. State leaves are told ON_CHANGE, as netlink tells us; packet counters are for
SAMPLE, ONCE and Get. Every update carries its full path, in a notification whose prefix holds the target only.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc
from finsy.proto import gnmi, gnmi_grpc

from switch.interfaces import COUNTER_LEAVES, LEAVES, InterfaceChange, Interfaces, Leaf, Value
from switch.serve import BadRequest

GNMI_VERSION = "0.10.0"
ENCODINGS = ("JSON", "PROTO", "JSON_IETF")
MODEL = gnmi.ModelData(name="openconfig-interfaces", organization="OpenConfig working group", version="3.0.0")

SAMPLE_INTERVAL_MIN_S = 0.1
SAMPLE_INTERVAL_DEFAULT_S = 1.0
UPDATES_PER_NOTIFICATION = 256
PENDING_MAX = 4096
"""Changes a slow subscriber may be behind; beyond that it gets all current values instead of each change."""

ONCE, POLL, STREAM = gnmi.SubscriptionList.ONCE, gnmi.SubscriptionList.POLL, gnmi.SubscriptionList.STREAM

_COUNTER_SET = frozenset(COUNTER_LEAVES)


class GnmiError(Exception):
    """A request that cannot be answered: gRPC status and a text that says what would have worked."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def known_paths() -> str:
    """The served tree in one line, for error messages."""
    below = [leaf[1] for leaf in LEAVES if len(leaf) == 2]
    counters = [leaf[2] for leaf in LEAVES if len(leaf) == 3]
    return (
        f"/interfaces/interface[name=*]/state/{{{','.join(below)}}}, "
        f"/interfaces/interface[name=*]/state/counters/{{{','.join(counters)}}}"
    )


def path_text(elems: Iterable[Any]) -> str:
    """A path as people write it: /interfaces/interface[name=eth0]/state."""
    return "/" + "/".join(
        elem.name + "".join(f"[{key}={value}]" for key, value in sorted(elem.key.items())) for elem in elems
    )


@dataclass(frozen=True, slots=True)
class Pattern:
    """What one path of a request selects: leaves of one interface, or of all (`name` None)."""

    name: str | None
    leaves: frozenset[Leaf]
    counters_only: bool


class Selection:
    """What all paths of a request select together, found by interface name.

    A fabric's finsy switches each subscribe to every port by name: with a search through all patterns for each
    interface, the first answer of 64 switches would take seconds.
    """

    def __init__(self, patterns: Iterable[Pattern] = ()) -> None:
        self._everywhere: frozenset[Leaf] = frozenset()
        self._of_name: dict[str, frozenset[Leaf]] = {}
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: Pattern) -> None:
        if pattern.name is None:
            self._everywhere |= pattern.leaves
        else:
            self._of_name[pattern.name] = self._of_name.get(pattern.name, frozenset()) | pattern.leaves

    def leaves(self, name: str) -> frozenset[Leaf]:
        """What is selected of one interface."""
        mine = self._of_name.get(name)
        return self._everywhere if mine is None else self._everywhere | mine

    @property
    def has_counters(self) -> bool:
        return any(not leaves.isdisjoint(_COUNTER_SET) for leaves in (self._everywhere, *self._of_name.values()))


def parse_path(prefix: gnmi.Path, path: gnmi.Path) -> Pattern:
    """Raises GnmiError (NOT_FOUND, INVALID_ARGUMENT) for a path outside the served tree."""
    if path.element or prefix.element:
        raise GnmiError(
            grpc.StatusCode.INVALID_ARGUMENT, "Path.element was replaced by Path.elem in gNMI 0.4: use elem"
        )
    for origin in (prefix.origin, path.origin):
        if origin not in ("", "openconfig"):
            raise GnmiError(
                grpc.StatusCode.NOT_FOUND, f"origin {origin!r}: only openconfig is served, or no origin at all"
            )
    elems = [*prefix.elem, *path.elem]
    unknown = GnmiError(grpc.StatusCode.NOT_FOUND, f"no path {path_text(elems)} here (served: {known_paths()})")
    for elem, fixed in zip(elems, ("interfaces", "interface"), strict=False):
        if elem.name not in (fixed, "*"):
            raise unknown
    if any(elem.key for at, elem in enumerate(elems) if at != 1):
        raise unknown
    name = None
    if len(elems) > 1:
        if set(elems[1].key) - {"name"}:
            raise unknown
        name = elems[1].key.get("name", "*")
        name = None if name == "*" else name
    wanted = [elem.name for elem in elems[2:]]
    leaves = frozenset(
        leaf
        for leaf in LEAVES
        if len(wanted) <= len(leaf) and all(want in ("*", have) for want, have in zip(wanted, leaf, strict=False))
    )
    if not leaves:
        raise unknown
    return Pattern(name, leaves, leaves <= _COUNTER_SET)


def leaf_path(name: str, leaf: Leaf) -> gnmi.Path:
    elem = [gnmi.PathElem(name="interfaces"), gnmi.PathElem(name="interface", key={"name": name})]
    return gnmi.Path(elem=elem + [gnmi.PathElem(name=part) for part in leaf])


def typed_value(value: Value, encoding: int) -> gnmi.TypedValue:
    """A value in the encoding asked for. JSON_IETF writes 64-bit numbers as strings (RFC 7951 §6.1).

    JSON is the number 0, what a client sends that does not care: it gets plain scalars, as from Stratum. finsy's
    subscriptions are such a client and understand nothing else.
    """
    if encoding != gnmi.JSON_IETF:
        return gnmi.TypedValue(string_val=value) if isinstance(value, str) else gnmi.TypedValue(uint_val=value)
    big = isinstance(value, int) and value >= 1 << 32
    return gnmi.TypedValue(json_ietf_val=json.dumps(str(value) if big else value).encode())


def check_encoding(encoding: int) -> None:
    if encoding not in (gnmi.JSON, gnmi.PROTO, gnmi.JSON_IETF):
        name = gnmi.Encoding.Name(encoding) if encoding in gnmi.Encoding.values() else str(encoding)
        raise GnmiError(
            grpc.StatusCode.UNIMPLEMENTED, f"encoding {name} is not supported (has: {', '.join(ENCODINGS)})"
        )


@dataclass(slots=True)
class _Sample:
    """One SAMPLE subscription of a stream, or the heartbeat of an ON_CHANGE one."""

    selection: Selection
    interval_s: float
    suppress_redundant: bool
    due_at: float
    sent: dict[tuple[str, Leaf], Value] = field(default_factory=dict)
    """Last values sent, kept only with suppress_redundant."""

    def news(self, current: dict[str, dict[Leaf, Value]]) -> dict[str, dict[Leaf, Value]]:
        """What is not as it was sent last."""
        out = {}
        for name, values in current.items():
            changed = {leaf: value for leaf, value in values.items() if self.sent.get((name, leaf)) != value}
            if changed:
                out[name] = changed
                self.sent.update({(name, leaf): value for leaf, value in changed.items()})
        return out


class _Request:
    """What Get and Subscribe have in common: target, encoding, and how to turn values into notifications."""

    def __init__(self, interfaces: Interfaces, prefix: gnmi.Path, encoding: int) -> None:
        check_encoding(encoding)
        self.interfaces = interfaces
        self.prefix = prefix
        self.encoding = encoding
        self.target = prefix.target
        self.device = None if self.target in ("", "*") else self.target
        if self.device is not None and self.device not in interfaces.devices:
            raise GnmiError(
                grpc.StatusCode.NOT_FOUND,
                f"no target {self.target!r} (has: {', '.join(interfaces.devices) or 'none yet'}; "
                "leave prefix.target empty for all)",
            )

    def parse(self, path: gnmi.Path) -> Pattern:
        if path.target not in ("", self.target):
            raise GnmiError(grpc.StatusCode.INVALID_ARGUMENT, "the target belongs in the prefix, not in a path")
        return parse_path(self.prefix, path)

    def mine(self, device: str) -> bool:
        return self.device is None or self.device == device

    def empty(self) -> gnmi.Notification:
        """A notification of now, without updates."""
        out = gnmi.Notification(timestamp=time.time_ns())
        if self.target:
            out.prefix.target = self.target
        return out

    def fill(self, notification: gnmi.Notification, name: str, values: dict[Leaf, Value]) -> gnmi.Notification:
        for leaf, value in values.items():
            notification.update.add(path=leaf_path(name, leaf), val=typed_value(value, self.encoding))
        return notification

    def current(self, selection: Selection) -> dict[str, dict[Leaf, Value]]:
        """Values of all selected leaves by interface."""
        counters = self.interfaces.counters() if selection.has_counters else None
        out: dict[str, dict[Leaf, Value]] = {}
        for name in self.interfaces.names(self.device):
            wanted = selection.leaves(name)
            if not wanted:
                continue
            values = dict(self.interfaces.values(name))
            if counters is not None:
                values.update(counters.get(name, {}))
            out[name] = {leaf: values[leaf] for leaf in LEAVES if leaf in wanted and leaf in values}
        return out

    def snapshot(self, selection: Selection) -> list[gnmi.Notification]:
        """Current values, many interfaces to a notification."""
        return self.packed(self.current(selection))

    def packed(self, values: dict[str, dict[Leaf, Value]]) -> list[gnmi.Notification]:
        out: list[gnmi.Notification] = []
        for name, leaves in values.items():
            if not out or len(out[-1].update) >= UPDATES_PER_NOTIFICATION:
                out.append(self.empty())
            self.fill(out[-1], name, leaves)
        return out


class _Stream:
    """A STREAM subscription: changes come in from netlink, notifications go out to one subscriber."""

    def __init__(self, request: _Request, subscriptions: Iterable[gnmi.Subscription], now: float) -> None:
        self._request = request
        self.selection = Selection()
        """All that the first answer holds."""
        self._on_change = Selection()
        self._samples: list[_Sample] = []
        self._pending: deque[gnmi.Notification] = deque()
        self._behind = False
        self._wake = asyncio.Event()
        for subscription in subscriptions:
            self._add(subscription, now)

    def _add(self, subscription: gnmi.Subscription, now: float) -> None:
        pattern = self._request.parse(subscription.path)
        self.selection.add(pattern)
        if subscription.mode == gnmi.SAMPLE:
            self._samples.append(_sample(pattern, subscription, now))
            return
        if subscription.mode == gnmi.TARGET_DEFINED and pattern.counters_only:
            interval = SAMPLE_INTERVAL_DEFAULT_S
            self._samples.append(_Sample(Selection([pattern]), interval, False, now + interval))
            return
        if pattern.counters_only:
            raise GnmiError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "packet counters change with every packet: subscribe with SAMPLE or ONCE, not ON_CHANGE",
            )
        self._on_change.add(pattern)
        if subscription.heartbeat_interval:
            interval = max(subscription.heartbeat_interval / 1e9, SAMPLE_INTERVAL_MIN_S)
            state = Pattern(pattern.name, pattern.leaves - _COUNTER_SET, False)
            self._samples.append(_Sample(Selection([state]), interval, False, now + interval))

    def take(self, change: InterfaceChange) -> None:
        """One change of an interface; called on the event loop."""
        if not self._request.mine(change.device):
            return
        wanted = self._on_change.leaves(change.name)
        if not wanted or self._behind:
            return
        if len(self._pending) >= PENDING_MAX:
            self._pending.clear()
            self._behind = True
        elif change.removed:
            self._pending.append(self._deletion(change.name))
        else:
            values = {leaf: value for leaf, value in change.leaves.items() if leaf in wanted}
            if values:
                self._pending.append(self._request.fill(self._request.empty(), change.name, values))
        self._wake.set()

    def _deletion(self, name: str) -> gnmi.Notification:
        out = self._request.empty()
        out.delete.append(leaf_path(name, ()))
        return out

    async def notifications(self) -> AsyncIterator[gnmi.Notification]:
        """Everything after the first snapshot, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            if self._behind:
                self._behind = False
                for notification in self._request.snapshot(self._on_change):
                    yield notification
            while self._pending:
                yield self._pending.popleft()
            for notification in self._sampled(clock()):
                yield notification
            if self._pending or self._behind:
                continue
            due = min((sample.due_at for sample in self._samples), default=None)
            try:
                await asyncio.wait_for(self._wake.wait(), None if due is None else max(0.0, due - clock()))
            except asyncio.TimeoutError:
                continue

    def _sampled(self, now: float) -> list[gnmi.Notification]:
        out = []
        for sample in self._samples:
            if sample.due_at > now:
                continue
            sample.due_at = max(sample.due_at + sample.interval_s, now)
            current = self._request.current(sample.selection)
            if sample.suppress_redundant:
                current = sample.news(current)
            out += self._request.packed(current)
        return out


def _sample(pattern: Pattern, subscription: gnmi.Subscription, now: float) -> _Sample:
    interval = subscription.sample_interval / 1e9 or SAMPLE_INTERVAL_DEFAULT_S
    if interval < SAMPLE_INTERVAL_MIN_S:
        raise GnmiError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"sample_interval {subscription.sample_interval} ns is too short: at least "
            f"{SAMPLE_INTERVAL_MIN_S * 1e9:.0f} ns, or 0 for {SAMPLE_INTERVAL_DEFAULT_S:g} s",
        )
    return _Sample(Selection([pattern]), interval, subscription.suppress_redundant, now + interval)


class GnmiService(gnmi_grpc.gNMIServicer):
    """The gNMI service over a set of interfaces."""

    def __init__(self, interfaces: Interfaces) -> None:
        self._interfaces = interfaces

    async def Capabilities(self, request: gnmi.CapabilityRequest, context: Any) -> gnmi.CapabilityResponse:
        return gnmi.CapabilityResponse(
            supported_models=[MODEL],
            supported_encodings=[gnmi.Encoding.Value(name) for name in ENCODINGS],
            gNMI_version=GNMI_VERSION,
        )

    async def Get(self, request: gnmi.GetRequest, context: Any) -> gnmi.GetResponse:
        try:
            return self._get(request)
        except GnmiError as error:
            await context.abort(error.code, str(error))

    def _get(self, request: gnmi.GetRequest) -> gnmi.GetResponse:
        common = _Request(self._interfaces, request.prefix, request.encoding)
        if not request.path and not request.prefix.elem:
            raise GnmiError(grpc.StatusCode.INVALID_ARGUMENT, f"Get without a path (served: {known_paths()})")
        patterns = [common.parse(path) for path in request.path or [gnmi.Path()]]
        if request.type == gnmi.GetRequest.CONFIG:
            raise GnmiError(
                grpc.StatusCode.NOT_FOUND, "nothing here is configuration: ask for type STATE, OPERATIONAL or ALL"
            )
        names = self._interfaces.names(common.device)
        for pattern in patterns:
            if pattern.name is not None and pattern.name not in names:
                raise GnmiError(
                    grpc.StatusCode.NOT_FOUND,
                    f"no interface {pattern.name!r}"
                    + (f" on {common.device}" if common.device else "")
                    + f" (has: {', '.join(sorted(names)[:20]) or 'none'}{' ...' if len(names) > 20 else ''})",
                )
        return gnmi.GetResponse(notification=common.snapshot(Selection(patterns)))

    async def Set(self, request: gnmi.SetRequest, context: Any) -> gnmi.SetResponse:
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            "this gNMI server is read-only: use Get or Subscribe (ports are set up by whoever starts the server)",
        )

    async def Subscribe(
        self, requests: AsyncIterator[gnmi.SubscribeRequest], context: Any
    ) -> AsyncIterator[gnmi.SubscribeResponse]:
        try:
            async for response in self._subscribe(requests):
                yield response
        except GnmiError as error:
            await context.abort(error.code, str(error))
        except BadRequest as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def _subscribe(self, requests: AsyncIterator[gnmi.SubscribeRequest]) -> AsyncIterator[gnmi.SubscribeResponse]:
        first = await anext(aiter(requests), None)
        if first is None:
            return
        if first.WhichOneof("request") != "subscribe" or not first.subscribe.subscription:
            raise GnmiError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "the first message of a Subscribe must carry a SubscriptionList with at least one subscription",
            )
        wanted = first.subscribe
        common = _Request(self._interfaces, wanted.prefix, wanted.encoding)
        if wanted.mode == STREAM:
            stream = _Stream(common, wanted.subscription, asyncio.get_running_loop().time())
            async for response in self._stream(common, stream, wanted.updates_only, requests):
                yield response
            return
        selection = Selection(common.parse(subscription.path) for subscription in wanted.subscription)
        for notification in [] if wanted.updates_only else common.snapshot(selection):
            yield gnmi.SubscribeResponse(update=notification)
        yield gnmi.SubscribeResponse(sync_response=True)
        if wanted.mode == ONCE:
            return
        async for request in requests:
            if request.WhichOneof("request") != "poll":
                raise _second_subscribe()
            for notification in common.snapshot(selection):
                yield gnmi.SubscribeResponse(update=notification)
            yield gnmi.SubscribeResponse(sync_response=True)

    async def _stream(
        self, common: _Request, stream: _Stream, updates_only: bool, requests: AsyncIterator[gnmi.SubscribeRequest]
    ) -> AsyncIterator[gnmi.SubscribeResponse]:
        stop_listening = self._interfaces.listen(stream.take)
        notifications = stream.notifications()
        intruder = asyncio.ensure_future(anext(aiter(requests), None))
        upcoming: asyncio.Future[gnmi.Notification] | None = None
        try:
            for notification in [] if updates_only else common.snapshot(stream.selection):
                yield gnmi.SubscribeResponse(update=notification)
            yield gnmi.SubscribeResponse(sync_response=True)
            while True:
                upcoming = asyncio.ensure_future(anext(notifications))
                waiting = {upcoming} if intruder.done() else {upcoming, intruder}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if intruder.done() and intruder.result() is not None:
                    raise _second_subscribe()
                yield gnmi.SubscribeResponse(update=await upcoming)
        finally:
            stop_listening()
            for task in (intruder, upcoming):
                if task is not None and not task.done():
                    task.cancel()


def _second_subscribe() -> GnmiError:
    return GnmiError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "one SubscriptionList a stream: open another stream (POLL streams alone take more, and only polls)",
    )
