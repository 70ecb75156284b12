"""gNMI 0.10 server for interfaces and their traffic.

Capabilities, Get, Set and Subscribe (ONCE, POLL, STREAM).

Served tree, with the names of openconfig-interfaces::

    /interfaces/interface[name=IF]/name
    /interfaces/interface[name=IF]/state/{name,ifindex,admin-status,oper-status,last-change,mtu}
    /interfaces/interface[name=IF]/state/counters/{in-pkts,out-pkts,...,carrier-transitions}

and, with a traffic manager, what switch/device/traffic_paths.py lists; that alone can be set
(switch/server/gnmi/set_request.py).

`name` may be `*` or absent; a path may stop at any level or have `*` for a name. A device name in `prefix.target`
narrows everything to its ports. State leaves are told ON_CHANGE, as netlink tells us, and settings as they are set;
counts and depths are for SAMPLE, ONCE and Get. Every update carries its full path, in a notification whose prefix
holds the target only.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from finsy.proto import gnmi, gnmi_grpc

from mrc_testbed.switch.device.traffic_paths import CONFIG_LEAVES, IMPAIRMENT_LEAVES, QOS_LEAVES
from mrc_testbed.switch.server.gnmi.set_request import Changes, read_set
from mrc_testbed.switch.server.gnmi.traffic_tree import (
    TrafficPorts,
    all_values,
    config_values,
    directions_to_restart,
    state_values,
    with_values,
)
from mrc_testbed.switch.server.gnmi.tree import (
    ALL_LEAVES,
    ENCODINGS,
    IMPAIRMENTS_MODULE,
    SAMPLED_LEAVES,
    TRAFFIC_SAMPLED_LEAVES,
    GnmiError,
    PathPattern,
    Selection,
    check_encoding,
    is_wide,
    known_paths,
    leaf_path,
    parse_path,
    path_text,
    typed_value,
)
from mrc_testbed.switch.server.grpc_server import BadRequestError
from mrc_testbed.switch.server.interfaces import COUNTER_LEAVES, LEAVES, InterfaceChange, Interfaces, Leaf, Value

GNMI_VERSION = "0.10.0"
MODELS = (gnmi.ModelData(name="openconfig-interfaces", organization="OpenConfig working group", version="3.0.0"),)
TRAFFIC_MODELS = (
    gnmi.ModelData(name="openconfig-qos", organization="OpenConfig working group", version="0.11.0"),
    gnmi.ModelData(name=IMPAIRMENTS_MODULE, organization="mrc-testbed", version="1.0.0"),
)
"""Models of the traffic leaves, with OpenConfig's names where they exist.

Of OpenConfig's leaves those that switch/device/traffic_paths.py lists are served.
"""

SAMPLE_INTERVAL_MIN_S = 0.1
SAMPLE_INTERVAL_DEFAULT_S = 1.0
UPDATES_PER_NOTIFICATION = 256
PENDING_MAX = 4096
"""Maximum number of changes a slow subscriber may be behind.

Beyond it the subscriber gets all current values instead of each change.
"""

ONCE, POLL, STREAM = gnmi.SubscriptionList.ONCE, gnmi.SubscriptionList.POLL, gnmi.SubscriptionList.STREAM

_DISCARDS: Leaf = ("state", "counters", "out-discards")
_TRAFFIC = frozenset((*IMPAIRMENT_LEAVES, *QOS_LEAVES))


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
        """Values that differ from those sent last, which they replace."""
        out = {}
        for name, values in current.items():
            changed_values = {leaf: value for leaf, value in values.items() if self.sent.get((name, leaf)) != value}
            if changed_values:
                out[name] = changed_values
                self.sent.update({(name, leaf): value for leaf, value in changed_values.items()})
        return out


class _Request:
    """Common part of Get and Subscribe: target, encoding, and how to turn values into notifications."""

    def __init__(
        self,
        interfaces: Interfaces,
        traffic: TrafficPorts | None,
        prefix: gnmi.Path,
        encoding: gnmi.Encoding.ValueType = gnmi.JSON,
    ) -> None:
        check_encoding(encoding)
        self.interfaces = interfaces
        self.traffic = traffic
        self.served_leaves = LEAVES if traffic is None else ALL_LEAVES
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

    def parse(self, path: gnmi.Path) -> PathPattern:
        if path.target not in ("", self.target):
            raise GnmiError(grpc.StatusCode.INVALID_ARGUMENT, "the target belongs in the prefix, not in a path")
        return parse_path(self.prefix, path, self.served_leaves)

    def covers_device(self, device: str) -> bool:
        return self.device is None or self.device == device

    def empty(self) -> gnmi.Notification:
        """A notification of now, without updates."""
        out = gnmi.Notification(timestamp=time.time_ns())
        if self.target:
            out.prefix.target = self.target
        return out

    def fill(self, notification: gnmi.Notification, name: str, values: dict[Leaf, Value]) -> gnmi.Notification:
        for leaf, value in values.items():
            notification.update.add(path=leaf_path(name, leaf), val=typed_value(value, self.encoding, is_wide(leaf)))
        return notification

    def current(self, selection: Selection) -> dict[str, dict[Leaf, Value]]:
        """Values of all selected leaves by interface."""
        counters = self.interfaces.counters() if selection.touches(COUNTER_LEAVES) else None
        traffic = self.traffic.names() if self.traffic is not None else ()
        out: dict[str, dict[Leaf, Value]] = {}
        for name in self.interfaces.names(self.device):
            leaves = selection.leaves(name)
            if not leaves:
                continue
            values = dict(self.interfaces.values(name))
            if counters is not None:
                values.update(counters.get(name, {}))
            if name in traffic:
                self._add_traffic(name, values, leaves)
            out[name] = {leaf: values[leaf] for leaf in self.served_leaves if leaf in leaves and leaf in values}
        return out

    def _add_traffic(self, name: str, values: dict[Leaf, Value], leaves: frozenset[Leaf]) -> None:
        assert self.traffic is not None
        if not leaves.isdisjoint(_TRAFFIC):
            values.update(all_values(name, self.traffic.get(name)))
        if not leaves.isdisjoint(TRAFFIC_SAMPLED_LEAVES) or _DISCARDS in leaves:
            state = self.traffic.state(name)
            values.update(state_values(state))
            if _DISCARDS in values:
                values[_DISCARDS] = int(values[_DISCARDS]) + sum(queue.dropped_pkts for queue in state.queues)

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
        self._is_behind = False
        self._wake = asyncio.Event()
        for subscription in subscriptions:
            self._add(subscription, now)

    def _add(self, subscription: gnmi.Subscription, now: float) -> None:
        pattern = self._request.parse(subscription.path)
        if subscription.mode not in (gnmi.TARGET_DEFINED, gnmi.ON_CHANGE, gnmi.SAMPLE):
            modes = "TARGET_DEFINED, ON_CHANGE, SAMPLE"
            raise GnmiError(grpc.StatusCode.INVALID_ARGUMENT, f"subscription mode {subscription.mode} (has: {modes})")
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
                "packet counters and depths change with every packet: subscribe with SAMPLE or ONCE, not ON_CHANGE",
            )
        self._on_change.add(pattern)
        if subscription.heartbeat_interval:
            interval = max(subscription.heartbeat_interval / 1e9, SAMPLE_INTERVAL_MIN_S)
            state = PathPattern(pattern.name, pattern.leaves - SAMPLED_LEAVES)
            self._samples.append(_Sample(Selection([state]), interval, False, now + interval))

    def take(self, change: InterfaceChange) -> None:
        """One change of an interface; called on the event loop."""
        if not self._request.covers_device(change.device):
            return
        leaves = self._on_change.leaves(change.name)
        if not leaves or self._is_behind:
            return
        if len(self._pending) >= PENDING_MAX:
            self._pending.clear()
            self._is_behind = True
        elif change.removed:
            self._pending.append(self._deletion(change.name))
        else:
            values = {leaf: value for leaf, value in change.leaves.items() if leaf in leaves}
            if values:
                self._pending.append(self._request.fill(self._request.empty(), change.name, values))
        self._wake.set()

    def _deletion(self, name: str) -> gnmi.Notification:
        out = self._request.empty()
        out.delete.append(leaf_path(name, (), qos=False))
        if self._request.traffic is not None:
            out.delete.append(leaf_path(name, (), qos=True))
        return out

    async def notifications(self) -> AsyncIterator[gnmi.Notification]:
        """Everything after the first snapshot, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            if self._is_behind:
                self._is_behind = False
                for notification in self._request.snapshot(self._on_change):
                    yield notification
            while self._pending:
                yield self._pending.popleft()
            for notification in self._due_notifications(clock()):
                yield notification
            if self._pending or self._is_behind:
                continue
            due = min((sample.due_at for sample in self._samples), default=None)
            try:
                await asyncio.wait_for(self._wake.wait(), None if due is None else max(0.0, due - clock()))
            except asyncio.TimeoutError:
                continue

    def _due_notifications(self, now: float) -> list[gnmi.Notification]:
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


def _sample(pattern: PathPattern, subscription: gnmi.Subscription, now: float) -> _Sample:
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

    def __init__(self, interfaces: Interfaces, traffic: TrafficPorts | None = None) -> None:
        self._interfaces = interfaces
        self._traffic = traffic

    async def Capabilities(self, _request: gnmi.CapabilityRequest, _context: Any) -> gnmi.CapabilityResponse:
        return gnmi.CapabilityResponse(
            supported_models=[*MODELS, *(TRAFFIC_MODELS if self._traffic is not None else ())],
            supported_encodings=[gnmi.Encoding.Value(name) for name in ENCODINGS],
            gNMI_version=GNMI_VERSION,
        )

    async def Get(self, request: gnmi.GetRequest, context: Any) -> gnmi.GetResponse:
        try:
            return self._get(request)
        except GnmiError as error:
            await _abort(context, error)

    def _get(self, request: gnmi.GetRequest) -> gnmi.GetResponse:
        parsed_request = _Request(self._interfaces, self._traffic, request.prefix, request.encoding)
        if not request.path and not request.prefix.elem:
            raise GnmiError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Get without a path (served: {known_paths(parsed_request.served_leaves)})",
            )
        patterns = [
            _of_type(parsed_request.parse(path), request.type, path_text([*request.prefix.elem, *path.elem]))
            for path in request.path or [gnmi.Path()]
        ]
        names = self._interfaces.names(parsed_request.device)
        for pattern in patterns:
            if pattern.name is not None and pattern.name not in names:
                raise GnmiError(
                    grpc.StatusCode.NOT_FOUND,
                    f"no interface {pattern.name!r}"
                    + (f" on {parsed_request.device}" if parsed_request.device else "")
                    + f" (has: {', '.join(sorted(names)[:20]) or 'none'}{' ...' if len(names) > 20 else ''})",
                )
        return gnmi.GetResponse(notification=parsed_request.snapshot(Selection(patterns)))

    async def Set(self, request: gnmi.SetRequest, context: Any) -> gnmi.SetResponse:
        try:
            return self._set(request)
        except GnmiError as error:
            await _abort(context, error)

    def _set(self, request: gnmi.SetRequest) -> gnmi.SetResponse:
        if self._traffic is None:
            raise GnmiError(
                grpc.StatusCode.UNIMPLEMENTED,
                "this gNMI server is read-only: use Get or Subscribe (it has no traffic manager)",
            )
        parsed_request = _Request(self._interfaces, self._traffic, request.prefix)
        names, traffic = parsed_request.interfaces.names(parsed_request.device), self._traffic.names()
        self._apply(read_set(request, frozenset(name for name in names if name in traffic)))
        out = gnmi.SetResponse(prefix=request.prefix, timestamp=time.time_ns())
        for path in request.delete:
            out.response.add(path=path, op=gnmi.UpdateResult.DELETE)
        for op, updates in ((gnmi.UpdateResult.REPLACE, request.replace), (gnmi.UpdateResult.UPDATE, request.update)):
            for update in updates:
                out.response.add(path=update.path, op=op)
        return out

    def _apply(self, changes: Changes) -> None:
        """Do all, then tell who listens."""
        assert self._traffic is not None
        new_settings, changed_leaves = {}, {}
        for name, values in changes.items():
            old_settings = self._traffic.get(name)
            old_values = config_values(old_settings)
            new_settings[name] = (with_values(old_settings, values), directions_to_restart(values))
            changed_leaves[name] = {
                leaf: values[leaf] for leaf in CONFIG_LEAVES if leaf in values and values[leaf] != old_values[leaf]
            }
        self._traffic.set(new_settings)
        for name, leaves in changed_leaves.items():
            if leaves:
                self._interfaces.publish_values(name, leaves)

    async def Subscribe(
        self, requests: AsyncIterator[gnmi.SubscribeRequest], context: Any
    ) -> AsyncIterator[gnmi.SubscribeResponse]:
        try:
            async for response in self._subscribe(requests):
                yield response
        except GnmiError as error:
            await context.abort(error.code, str(error))
        except BadRequestError as error:
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
        subscription_list = first.subscribe
        if subscription_list.mode not in (ONCE, POLL, STREAM):
            raise GnmiError(
                grpc.StatusCode.INVALID_ARGUMENT, f"mode {subscription_list.mode} (has: ONCE, POLL, STREAM)"
            )
        parsed_request = _Request(self._interfaces, self._traffic, subscription_list.prefix, subscription_list.encoding)
        if subscription_list.mode == STREAM:
            stream = _Stream(parsed_request, subscription_list.subscription, asyncio.get_running_loop().time())
            async for response in self._stream(parsed_request, stream, subscription_list.updates_only, requests):
                yield response
            return
        selection = Selection(
            parsed_request.parse(subscription.path) for subscription in subscription_list.subscription
        )
        # With updates_only the client wants changes alone: the first snapshot is left out, the sync_response is not.
        for notification in [] if subscription_list.updates_only else parsed_request.snapshot(selection):
            yield gnmi.SubscribeResponse(update=notification)
        yield gnmi.SubscribeResponse(sync_response=True)
        if subscription_list.mode == ONCE:
            return
        async for request in requests:
            if request.WhichOneof("request") != "poll":
                raise _second_subscribe()
            for notification in parsed_request.snapshot(selection):
                yield gnmi.SubscribeResponse(update=notification)
            yield gnmi.SubscribeResponse(sync_response=True)

    async def _stream(
        self,
        parsed_request: _Request,
        stream: _Stream,
        updates_only: bool,
        requests: AsyncIterator[gnmi.SubscribeRequest],
    ) -> AsyncIterator[gnmi.SubscribeResponse]:
        stop_listening = self._interfaces.listen(stream.take)
        notifications = stream.notifications()
        intruder = asyncio.ensure_future(anext(aiter(requests), None))
        upcoming: asyncio.Future[gnmi.Notification] | None = None
        try:
            for notification in [] if updates_only else parsed_request.snapshot(stream.selection):
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


async def _abort(context: Any, error: GnmiError) -> NoReturn:
    await context.abort(error.code, str(error))
    raise AssertionError("abort returned")


def _of_type(pattern: PathPattern, kind: gnmi.GetRequest.DataType.ValueType, path_name: str) -> PathPattern:
    """The leaves of a Get's type. Raises GnmiError when that leaves nothing."""
    if kind == gnmi.GetRequest.ALL:
        return pattern
    config = kind == gnmi.GetRequest.CONFIG
    leaves = frozenset(leaf for leaf in pattern.leaves if (leaf in CONFIG_LEAVES) is config)
    if not leaves:
        other_types = "STATE, OPERATIONAL" if config else "CONFIG"
        raise GnmiError(
            grpc.StatusCode.NOT_FOUND,
            f"{path_name}: nothing of type {gnmi.GetRequest.DataType.Name(kind)} there (has: {other_types} or ALL)",
        )
    return PathPattern(pattern.name, leaves)


def _second_subscribe() -> GnmiError:
    return GnmiError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "one SubscriptionList a stream: open another stream (POLL streams alone take more, and only polls)",
    )
