"""A fabric in memory for the whole controller.

Switches and gNMI behind gRPC stubs, hosts behind lines in memory.

The controller, finsy's clients and our RPC are the real ones; what they talk to has a state of its own, and can be
late, stopped, dead, restarted, taken by another controller, or refuse. Time is a JumpingLoop's.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import random
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import grpc
from finsy.proto import U128, gnmi, p4r, rpc_code, rpc_status
from google.protobuf.any_pb2 import Any as PbAny

from mrc_testbed.controller.app import FabricController
from mrc_testbed.controller.config import ControllerConfig, SwitchAddress
from mrc_testbed.controller.faults.path_segments import PathSegmenter
from mrc_testbed.controller.p4runtime.routes import entries_of
from mrc_testbed.controller.problems import ProblemKind
from mrc_testbed.hosts.clustermapper.health import Rules, TargetHealth, TargetState
from mrc_testbed.hosts.clustermapper.prober import target_json
from mrc_testbed.hosts.clustermapper.targets import loops_of, targets_of
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.switch.device.entities import Digest
from mrc_testbed.switch.server.p4runtime.digests import Digests
from mrc_testbed.switch.server.p4runtime.errors import RpcError
from tests.lines_in_memory import Fate, LinesInMemory

GNMI_ADDRESS = "127.0.0.1:9339"
CELL_BITS = 9
DEAD_NEXT_HOP = 10
"""Reason of a report (drop_reason_t of p4src)."""
PROBES_S = 10.0
"""Probes of a target in a second, and about as many packets of an EV."""
TICK_S = 0.2
"""Time in which two packets pass over each walk."""
VERDICT_S = 0.35
"""Time from the death of a path to Clustermapper's verdict."""


def rpc_error(code, text, details=None):
    """Return an error as grpc.aio raises it.

    `details`: of each update of a write, by index, its code and text.
    """
    trailing = grpc.aio.Metadata()
    if details is not None:
        status = rpc_status.Status(code=code.value[0], message=text)
        for detail in details:
            packed = PbAny()
            packed.Pack(p4r.Error(canonical_code=detail[0], message=detail[1]))
            status.details.append(packed)
        trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details=text)


class Stream:
    """One bidirectional call, seen from the client.

    A message that is lost is the end of the stream, as in TCP.
    """

    def __init__(self, fabric, name, serve):
        self._fabric, self._name, self._serve = fabric, name, serve
        self._queue, self.has_ended = asyncio.Queue(), False
        self._free_at = self._served_at = 0.0
        """Times before which nothing arrives, at the client and at the server: a stream keeps its order."""

    async def write(self, message):
        if self.has_ended:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, "the stream has ended")
        fate = self._fabric.fate_of_message(f"{self._name} request {_kind_of(message)}")
        if not fate.copies:
            self._break()
        self._served_at = max(self._served_at, self._fabric.now + fate.late_s)
        for _ in range(fate.copies):
            if self._served_at > self._fabric.now:
                self._fabric.loop.call_at(self._served_at, self._arrive, message)
            else:
                self._arrive(message)

    def _arrive(self, message):
        if not self.has_ended:
            self._serve(self, message)

    def _break(self):
        self._queue.put_nowait(rpc_error(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer"))

    def send(self, item):
        fate = Fate()
        if not isinstance(item, BaseException) and item is not grpc.aio.EOF:
            fate = self._fabric.fate_of_message(f"{self._name} {_kind_of(item)}")
        if not fate.copies:
            self._break()
            return
        self._free_at = max(self._free_at, self._fabric.now + fate.late_s)
        for _ in range(fate.copies):
            if self._free_at > self._fabric.now:
                self._fabric.loop.call_at(self._free_at, self._queue.put_nowait, item)
            else:
                self._queue.put_nowait(item)

    async def read(self):
        item = await self._queue.get()
        if isinstance(item, BaseException) or item is grpc.aio.EOF:
            self.has_ended = True
            self._queue.put_nowait(item)  # whoever reads again gets the same
        if isinstance(item, BaseException):
            raise item
        return item

    def done(self):
        return self.has_ended

    def add_done_callback(self, _callback):
        """No write here hides the status that it calls for."""

    def cancel(self):
        self.has_ended = True
        self._queue.put_nowait(asyncio.CancelledError())


def _kind_of(message):
    field, _ = next(iter(message.ListFields()), (None, None))
    return field.name if field is not None else "empty"


class Channel:
    async def close(self):
        pass


# ---- switches -----------------------------------------------------------------------------------------------


class SwitchInFabric:
    """One P4Runtime switch."""

    def __init__(self, fabric, switch):
        self.fabric, self.switch, self.name = fabric, switch, switch.name
        self.is_on, self.is_stopped, self.is_black_hole, self.counts_are_refused = True, False, False, False
        self.late_s = 0.0
        self.waiting_tasks = []
        """Messages that wait until the switch goes on."""
        self.lost_answers = 0
        """Requests that are served next and not answered."""
        self.refused_writes = 0
        self.go_on = asyncio.Event()
        self.intruder = 0
        self.forwarded, self.drops = Counter(), Counter()
        self._forget()
        self.bids = {}

    def _forget(self):
        self.cookie, self.entities, self.streams = None, {}, []
        self.digests = self._no_digests()
        self.bids, self.highest = {}, 0

    def _no_digests(self):
        """Return the digests as the server of ours sends them, none configured."""
        self.unacknowledged_ids = set()
        """Ids of lists that were sent and not acknowledged."""
        return Digests(self.fabric.catalog.schema.p4info, self._send_digests, self.fabric.loop)

    # ---- power, another controller

    def power(self, on):
        if on == self.is_on:
            return
        self.fabric.count_traffic()
        self.is_on = on
        for stream in self.streams:
            stream.send(rpc_error(grpc.StatusCode.UNAVAILABLE, "Socket closed"))
        self._forget()
        self.forwarded.clear(), self.drops.clear()
        self.intruder = 0

    def stop(self, is_stopped):
        self.is_stopped = is_stopped
        if not is_stopped:
            self.go_on.set()
            self.go_on = asyncio.Event()

    def intrude(self, election_id):
        if self.is_on:
            self.intruder = election_id
            self.highest = max(self.highest, election_id)
            self._tell_primary()

    def leave(self):
        if self.intruder:
            self.intruder = 0
            self._tell_primary()

    def spoil(self):
        """Change the tables, as an intruder."""
        if self.intruder and self.entities:
            del self.entities[random.choice(sorted(self.entities))]

    def break_streams(self, orderly):
        for stream in self.streams:
            stream.send(grpc.aio.EOF if orderly else rpc_error(grpc.StatusCode.UNAVAILABLE, "Connection reset"))
        self.streams, self.bids = [], {}

    @property
    def primary(self):
        highest_bid = max([*self.bids.values(), self.intruder], default=0)
        return highest_bid if highest_bid and highest_bid >= self.highest else 0

    def _tell_primary(self):
        primary = self.primary
        for stream, bid in self.bids.items():
            code = rpc_code.OK if bid == primary else rpc_code.ALREADY_EXISTS if primary else rpc_code.NOT_FOUND
            update = p4r.MasterArbitrationUpdate(election_id=U128.encode(primary or self.highest))
            update.status.code = code
            stream.send(p4r.StreamMessageResponse(arbitration=update))

    def serve_stream(self, stream, message):
        if not self.is_on:
            stream.send(rpc_error(grpc.StatusCode.UNAVAILABLE, "Connection refused"))
        elif self.is_stopped:
            self.waiting_tasks.append(asyncio.ensure_future(self._later(stream, message)))
        elif message.HasField("arbitration"):
            bid = U128.decode(message.arbitration.election_id)
            if stream not in self.streams:
                self.streams.append(stream)
            self.bids = {s: b for s, b in self.bids.items() if not s.has_ended}
            self.bids[stream] = bid
            self.highest = max(self.highest, bid)
            self._tell_primary()
        elif message.HasField("digest_ack"):
            self._acknowledge(stream, message.digest_ack)

    async def _later(self, stream, message):
        await self.go_on.wait()
        self.serve_stream(stream, message)

    def _send_digests(self, message):
        primaries = [stream for stream, bid in self.bids.items() if bid == self.primary and not stream.has_ended]
        for stream in primaries:
            stream.send(message)
        if primaries:
            self.unacknowledged_ids.add(message.digest.list_id)
        return bool(primaries)

    def report(self, egress_port):
        """Report a packet that met a dead next hop behind a port."""
        (info,) = self.fabric.catalog.schema.p4info.digests
        fields = ((DEAD_NEXT_HOP, 1), (1, 2), (egress_port, 2), (7, 16))
        data = b"".join(value.to_bytes(size, "big") for value, size in fields)
        self.digests.feed([Digest(info.preamble.id, data, 0)])

    def _acknowledge(self, stream, ack):
        if self.bids.get(stream) == self.primary:
            self.unacknowledged_ids.discard(ack.list_id)
            self.digests.acknowledge(ack)

    # ---- requests

    async def serve(self, handler, message, timeout):
        try:
            return await asyncio.wait_for(self._serve(handler, message), timeout)
        except asyncio.TimeoutError:
            raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None

    async def _serve(self, handler, message):
        name = f"p4runtime {type(message).__name__}"
        request_fate, answer_fate = (self.fabric.fate_of_message(f"{name}{end}") for end in ("", " answer"))
        await asyncio.sleep(0.001 + self.late_s + request_fate.late_s)
        while self.is_stopped:
            await self.go_on.wait()
        if not self.is_on:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
        if not request_fate.copies:
            await asyncio.Event().wait()
        answer = handler(message)
        if request_fate.copies == 2:
            with contextlib.suppress(grpc.RpcError):
                handler(message)
        await asyncio.sleep(answer_fate.late_s)
        if self.lost_answers or not answer_fate.copies:
            self.lost_answers = max(0, self.lost_answers - 1)
            await asyncio.Event().wait()
        return answer

    def _must_be_primary(self, message):
        if U128.decode(message.election_id) != self.primary:
            raise rpc_error(grpc.StatusCode.PERMISSION_DENIED, "not the primary")

    def set_pipeline(self, message):
        self._must_be_primary(message)
        self.cookie, self.entities, self.digests = message.config.cookie.cookie, {}, self._no_digests()
        return p4r.SetForwardingPipelineConfigResponse()

    def get_pipeline(self, _message):
        if self.cookie is None:
            raise rpc_error(grpc.StatusCode.FAILED_PRECONDITION, "no pipeline")
        answer = p4r.GetForwardingPipelineConfigResponse()
        answer.config.cookie.cookie = self.cookie
        return answer

    def write(self, message):
        self._must_be_primary(message)
        if self.cookie is None:
            raise rpc_error(grpc.StatusCode.FAILED_PRECONDITION, "no pipeline")
        if self.refused_writes:
            self.refused_writes -= 1
            raise rpc_error(
                grpc.StatusCode.UNKNOWN, "failed", [(rpc_code.RESOURCE_EXHAUSTED, "full")] * len(message.updates)
            )
        details = [self._update(update) for update in message.updates]
        if any(code != rpc_code.OK for code, _ in details):
            raise rpc_error(grpc.StatusCode.UNKNOWN, "failed", details)
        return p4r.WriteResponse()

    def _update(self, update):
        kind, entity = update.type, update.entity
        if entity.HasField("digest_entry"):
            change = {p4r.Update.INSERT: self.digests.insert, p4r.Update.MODIFY: self.digests.modify}.get(kind)
            try:
                (change or self.digests.delete)(entity.digest_entry)
            except RpcError as error:
                return error.code, str(error)
            return rpc_code.OK, ""
        key = _key(entity)
        is_default = entity.HasField("table_entry") and entity.table_entry.is_default_action
        if kind == p4r.Update.INSERT and key in self.entities:
            return rpc_code.ALREADY_EXISTS, "there is such an entry"
        if kind != p4r.Update.INSERT and key not in self.entities and not is_default:
            return rpc_code.NOT_FOUND, "no such entry"
        if kind == p4r.Update.DELETE:
            del self.entities[key]
        else:
            copy = p4r.Entity()
            copy.CopyFrom(entity)
            self.entities[key] = copy
        return rpc_code.OK, ""

    def read(self, message):
        answer = p4r.ReadResponse()
        for entity in message.entities:
            kind = entity.WhichOneof("entity")
            if kind == "counter_entry":
                if self.counts_are_refused:
                    raise rpc_error(grpc.StatusCode.INTERNAL, "counters are not to be had")
                answer.entities.extend(self._cells(entity.counter_entry))
            elif kind == "digest_entry":
                entries = self.digests.entries(entity.digest_entry.digest_id)
                answer.entities.extend(p4r.Entity(digest_entry=entry) for entry in entries)
            else:
                answer.entities.extend(e for e in self.entities.values() if _is_of(e, entity, kind))
        return answer

    def _cells(self, counter_entry):
        self.fabric.count_traffic()
        name = self.fabric.counters.get(counter_entry.counter_id, "")
        counts = {"forwarded": self.forwarded, "drops": self.drops}.get(name, Counter())
        if counter_entry.HasField("index"):
            entry = p4r.CounterEntry(counter_id=counter_entry.counter_id, index=counter_entry.index)
            entry.data.packet_count = counts[counter_entry.index.index]
            yield p4r.Entity(counter_entry=entry)


def _key(entity):
    kind = entity.WhichOneof("entity")
    part = getattr(entity, kind)
    if kind == "table_entry":
        matches = b"".join(sorted(m.SerializeToString(deterministic=True) for m in part.match))
        return f"{kind} {part.table_id} {part.priority} {part.is_default_action} {matches.hex()}"
    number = part.member_id if kind == "action_profile_member" else part.group_id
    return f"{kind} {part.action_profile_id} {number}"


def _is_of(entity, request_entity, kind):
    if entity.WhichOneof("entity") != kind:
        return False
    part, request_part = getattr(entity, kind), getattr(request_entity, kind)
    if kind == "table_entry":
        return part.table_id == request_part.table_id and part.is_default_action == request_part.is_default_action
    return part.action_profile_id == request_part.action_profile_id


class P4Stub:
    """Stub of finsy's P4Client; one address is one switch."""

    def __init__(self, switch):
        self._switch = switch

    def StreamChannel(self, wait_for_ready=False):
        return Stream(self._switch.fabric, "p4runtime stream", self._switch.serve_stream)

    async def SetForwardingPipelineConfig(self, message, timeout):
        return await self._switch.serve(self._switch.set_pipeline, message, timeout)

    async def GetForwardingPipelineConfig(self, message, timeout):
        return await self._switch.serve(self._switch.get_pipeline, message, timeout)

    async def Write(self, message, timeout):
        return await self._switch.serve(self._switch.write, message, timeout)

    async def Read(self, message, timeout):
        yield await self._switch.serve(self._switch.read, message, timeout)


# ---- ports --------------------------------------------------------------------------------------------------


class GnmiInFabric:
    """The gNMI server of all switches."""

    def __init__(self, fabric):
        self.fabric = fabric
        self.is_on, self.is_stopped, self.counts_are_refused, self.doubles = True, False, False, False
        self.ends_before_sync = 0
        self.streams = []
        self.status = {}
        self.received = Counter()

    def serve_stream(self, stream, _message):
        if self.is_stopped:
            return
        if not self.is_on:
            stream.send(rpc_error(grpc.StatusCode.UNAVAILABLE, "Connection refused"))
            return
        if self.ends_before_sync:
            self.ends_before_sync -= 1
            stream.send(grpc.aio.EOF)
            return
        self.streams.append(stream)
        for interface in self.status:
            self._send_status(stream, interface)
        stream.send(gnmi.SubscribeResponse(sync_response=True))

    def power(self, on):
        self.is_on = on
        if not on:
            self.end(orderly=False)

    def end(self, orderly):
        for stream in self.streams:
            stream.send(grpc.aio.EOF if orderly else rpc_error(grpc.StatusCode.UNAVAILABLE, "Socket closed"))
        self.streams = []

    def set(self, interface, status):
        if self.status.get(interface) != status:
            self.status[interface] = status
            self.announce(interface)

    def announce(self, interface):
        """Tell of a port again."""
        for stream in self.streams:
            for _ in range(2 if self.doubles else 1):
                self._send_status(stream, interface)

    def strange(self, elements, value):
        """Send an update on an unknown port."""
        update = gnmi.Update(path=_path(elements), val=value)
        for stream in self.streams:
            stream.send(gnmi.SubscribeResponse(update=gnmi.Notification(update=[update])))

    def _send_status(self, stream, interface):
        path = _path(("interfaces", ("interface", interface), "state", "oper-status"))
        update = gnmi.Update(path=path, val=gnmi.TypedValue(string_val=self.status[interface]))
        stream.send(gnmi.SubscribeResponse(update=gnmi.Notification(update=[update])))

    async def get(self, request):
        request_fate, answer_fate = (self.fabric.fate_of_message(f"gnmi Get{end}") for end in ("", " answer"))
        await asyncio.sleep(0.001 + request_fate.late_s + answer_fate.late_s)
        while self.is_stopped or not request_fate.copies or not answer_fate.copies:
            await asyncio.sleep(1.0)
        if not self.is_on:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, "Connection refused")
        self.fabric.count_traffic()
        notification = gnmi.Notification()
        for path in request.path:
            interface = path.elem[1].key["name"]
            if self.counts_are_refused:
                continue
            leaf = _path(("interfaces", ("interface", interface), "state", "counters", "in-pkts"))
            value = gnmi.TypedValue(uint_val=self.received[interface])
            notification.update.append(gnmi.Update(path=leaf, val=value))
        return gnmi.GetResponse(notification=[notification])


def _path(elements):
    path = gnmi.Path()
    for element in elements:
        name, key = element if isinstance(element, tuple) else (element, None)
        path.elem.add(name=name, key={"name": key} if key is not None else {})
    return path


class GnmiStub:
    def __init__(self, server):
        self._server = server

    def Subscribe(self, wait_for_ready=True):
        return Stream(self._server.fabric, "gnmi subscription", self._server.serve_stream)

    async def Get(self, request):
        return await self._server.get(request)


# ---- hosts --------------------------------------------------------------------------------------------------


class AgentInFabric:
    """A host's agent with a QP to each other host."""

    def __init__(self, fabric, host):
        self.fabric, self.host = fabric, host
        self.refuses = False
        self.paths = [
            SimpleNamespace(
                peer=peer,
                ev=ev,
                trace=fabric.segmenter.data(host, peer, ev),
                state="good",
                sent=0,
                lost=0,
                counted_at=0.0,
            )
            for peer in fabric.plan.hosts
            if peer != host
            for ev in list(fabric.plan.evs(host, peer))[:3]
        ]
        self.begin()

    def begin(self):
        self.denylist = []
        self.server = self.fabric.lines.listen(self.host.name, self._serve)
        for path in self.paths:
            path.state, path.sent, path.lost, path.counted_at = "good", 0, 0, self.fabric.now

    def _serve(self, request, _call):
        if self.refuses:
            raise JsonlError("busy: try again")
        match request["op"]:
            case "health":
                return {"peers": self._health()}
            case "denylist":
                self.denylist = request["entries"]
                return {"entries": self.denylist}
        raise JsonlError(f"no op {request['op']!r}")

    def _health(self):
        rows = {}
        for path in self.paths:
            self.count(path)
            rows.setdefault(path.peer.name, []).append(
                {
                    "ev": path.ev,
                    "state": path.state,
                    "sent": path.sent,
                    "acked": path.sent - path.lost,
                    "lost": path.lost,
                    "rtt_s": 0.002,
                }
            )
        return [{"peer": peer, "evs": evs} for peer, evs in rows.items()]

    def count(self, path):
        packets, path.counted_at = int((self.fabric.now - path.counted_at) * PROBES_S), self.fabric.now
        path.sent += packets
        path.lost += packets if self.fabric.is_dead(path.trace) else 0

    def update_states(self):
        for path in self.paths:
            self.count(path)
            state = "assumed_bad" if self.fabric.is_dead(path.trace) else "good"
            if state != path.state:
                old_state, path.state = path.state, state
                self.server.publish(
                    "ev",
                    t=self.fabric.now,
                    peer=path.peer.name,
                    ev=path.ev,
                    old=old_state,
                    new=state,
                    qpn=17,
                    plane=path.trace.plane,
                    cause="loss",
                )


class MapperInFabric:
    """Clustermapper: its verdicts follow what is dead; figures grow with time."""

    def __init__(self, fabric):
        self.fabric = fabric
        targets = targets_of(fabric.plan)
        self.targets = (*targets, *loops_of(fabric.plan, targets))
        self.walks = [fabric.segmenter.from_nodes(target.walk) for target in self.targets]
        self.begin()

    def begin(self):
        self.health = [TargetHealth(Rules()) for _ in self.targets]
        for health in self.health:
            health.state = TargetState.OK
        self.counted_at = self.fabric.now
        self.server = self.fabric.lines.listen("mapper", self._serve, lambda _request: self.snapshot())

    def snapshot(self):
        return [{"event": "probe", "t": self.fabric.now, **row} for row in self.rows()]

    def rows(self):
        return [target_json(*pair) for pair in zip(self.targets, self.health, strict=True)]

    def _serve(self, request, _call):
        if request["op"] == "targets":
            self.count()
            rows = self.rows()
            return {
                "targets": [r for r in rows if r["kind"] != "loop"],
                "loops": [r for r in rows if r["kind"] == "loop"],
            }
        raise JsonlError(f"no op {request['op']!r}")

    def count(self):
        packets = int((self.fabric.now - self.counted_at) * PROBES_S)
        self.counted_at += packets / PROBES_S
        for health, walk in zip(self.health, self.walks, strict=True):
            health.sent += packets
            if self.fabric.is_dead(walk):
                health.lost += packets
            elif packets:
                health.back_at = self.fabric.now

    def update_states(self):
        self.count()
        for target, health, walk in zip(self.targets, self.health, self.walks, strict=True):
            state = TargetState.DOWN if self.fabric.is_dead(walk) else TargetState.OK
            if state is not health.state:
                old_state, health.state, health.began_at = health.state, state, self.fabric.now
                self.server.publish("probe", t=self.fabric.now, **target_json(target, health), old=old_state.value)


# ---- all of it ----------------------------------------------------------------------------------------------


class FabricInMemory:
    """A fabric and its controller. Make it inside the loop, `start`, let things happen, `stop`."""

    def __init__(self, plan, catalog, program, folder, *, keeps_lines=False):
        self.plan, self.catalog, self.program, self.folder = plan, catalog, program, Path(folder)
        self.loop = asyncio.get_running_loop()
        self.segmenter = PathSegmenter(plan)
        self.counters = {info.id: info.name.rpartition(".")[2] for info in catalog.schema.counters}
        self.lines = LinesInMemory(keeps_lines=keeps_lines)
        self.down_links, self.dead_arcs = set(), set()
        self.switches = {switch.name: SwitchInFabric(self, switch) for switch in plan.switches}
        self.gnmi = GnmiInFabric(self)
        self.agents = {host.name: AgentInFabric(self, host) for host in plan.hosts}
        self.mapper = MapperInFabric(self)
        self.controller = None
        self.events = []
        self.messages = []
        """Kinds of the gRPC messages so far, in order."""
        self.fate = lambda _number, _kind: Fate()
        """Fate of a gRPC message by its number and kind."""
        self._ports()
        self._walks = self._all_walks()
        self._passing = self._counters_of_passing()
        self._counted_at = self.now

    @property
    def now(self):
        return self.loop.time()

    def fate_of_message(self, kind):
        self.messages.append(kind)
        return self.fate(len(self.messages) - 1, kind)

    def is_dead(self, trace):
        if any(arc in self.dead_arcs for arc in trace.arcs):
            return True
        return any(not (s := self.switches[name]).is_on or s.is_black_hole for name in trace.switches)

    def apply_changes(self):
        """Pass on a fault or repair: ports report at once, hosts soon."""
        self.count_traffic()
        self.dead_arcs |= {arc for link in self.down_links for arc in self.segmenter.arcs(link)}
        self._passing = self._counters_of_passing()
        self._ports()
        self.loop.call_later(0.05, self._update_hosts)
        self.loop.call_later(VERDICT_S, self.mapper.update_states)

    def _update_hosts(self):
        for agent in self.agents.values():
            agent.update_states()

    def _ports(self):
        for link in self.plan.links:
            ends = [p.node for p in (link.lower, link.upper)]
            is_off = any(name in self.switches and not self.switches[name].is_on for name in ends)
            for port in (link.lower, link.upper):
                if port.node in self.switches:
                    self.gnmi.set(port.interface, "DOWN" if link in self.down_links or is_off else "UP")

    def set_link(self, link, is_up):
        (self.down_links.discard if is_up else self.down_links.add)(link)
        if is_up:
            self.dead_arcs -= set(self.segmenter.arcs(link))
        self.apply_changes()

    def set_arc(self, arc, works):
        (self.dead_arcs.discard if works else self.dead_arcs.add)(arc)
        self.apply_changes()

    def _all_walks(self):
        """(arc, sender, receiver, number of the sender's port, interface of the receiver) along each walk."""
        walks = [*self.mapper.walks, *(path.trace for agent in self.agents.values() for path in agent.paths)]
        numbers = {p.interface: p.number for s in self.plan.switches for p in self.plan.ports(s.name)}
        peers = {
            port.interface: peer_port.interface
            for link in self.plan.links
            for port, peer_port in ((link.lower, link.upper), (link.upper, link.lower))
        }
        return [[(arc, *self.segmenter.ends(arc), numbers.get(arc), peers[arc]) for arc in walk.arcs] for walk in walks]

    def _counters_of_passing(self):
        """Return ({(switch, port): packets of a tick}, {interface: packets of a tick}) as the fabric is now."""
        forwarded, received = Counter(), Counter()
        for walk in self._walks:
            for arc, sender, receiver, number, peer in walk:
                if (switch := self.switches.get(sender)) is not None:
                    if not switch.is_on or switch.is_black_hole:
                        break
                    forwarded[sender, number] += 2
                if arc in self.dead_arcs or (receiver in self.switches and not self.switches[receiver].is_on):
                    break
                received[peer] += 2
        return forwarded, received

    def count_traffic(self):
        """Count the packets of all walks until now: before a counter is read, and before the fabric changes."""
        ticks = int((self.now - self._counted_at) / TICK_S)
        if not ticks:
            return
        self._counted_at += ticks * TICK_S
        forwarded, received = self._passing
        for (name, number), packets in forwarded.items():
            self.switches[name].forwarded[number] += ticks * packets
        for interface, packets in received.items():
            self.gnmi.received[interface] += ticks * packets

    # ---- the controller

    async def start(self, **options):
        targets = tuple(
            SwitchAddress(
                s,
                f"127.0.0.1:{10_000 + s.device_id}",
                s.device_id,
                GNMI_ADDRESS,
                tuple(entries_of(self.program, self.plan, s, self.catalog)),
            )
            for s in self.plan.switches
        )
        config = ControllerConfig(self.folder, self.program, self.plan, self.catalog, targets)
        self.controller = FabricController(config, **options)
        self.controller.on_event = lambda event, t, **fields: self.events.append((event, t, fields))
        self._folder_context = self.controller.open_run_folder()
        self._folder_context.__enter__()
        self.running = self.loop.create_task(self.controller.run(60.0))

    async def stop(self):
        """End the controller. Raises what it ended with."""
        self.controller.stop()
        try:
            await self.running
        finally:
            self.close_journal()

    def close_journal(self):
        self._folder_context.__exit__(None, None, None)

    @property
    def has_ended(self):
        return self.running.done()

    def differences(self):
        """Return the differences from the desired state, now that nothing is broken."""
        controller, out = self.controller, []
        out += [f"fault {f.number}: {f.text}" for f in controller.faults.active()]
        out += [f"problem: {p.text}" for p in controller.problems.active() if p.kind is not ProblemKind.INTERNAL]
        for name, provisioner in controller.provisioners.items():
            switch = self.switches[name]
            if provisioner.status.state.value != "verified":
                out.append(f"{name} is {provisioner.status.state.value}: {provisioner.status.reason}")
            plan_entities = {_key(entry.entity): entry.entity for entry in provisioner.target.entries}
            if plan_entities != switch.entities:
                out.append(f"{name} holds {len(switch.entities)} entries and not the plan's {len(plan_entities)}")
        for host, agent in self.agents.items():
            if agent.denylist != controller.denylist.entries:
                out.append(f"{host} has the denylist {agent.denylist} and not {controller.denylist.entries}")
        out += [f"{w.address}: {w.reason}" for w in controller.watches if not w.is_synced]
        out += [f"{s.name} is not followed" for s in (controller.agents, controller.mapper) if not s.connected]
        return out


@contextlib.contextmanager
def in_memory(loop):
    """Let finsy, our RPC and the clock be those of the loop's fabric, found by address.

    `fabric.loop is loop`.
    """
    holder = SimpleNamespace(fabric=None)

    def p4_stub(channel):
        number = int(channel.address.rpartition(":")[2]) - 10_000
        return P4Stub(next(s for s in holder.fabric.switches.values() if s.switch.device_id == number))

    def channel_to(address, **_options):
        channel = Channel()
        channel.address = address
        return channel

    with contextlib.ExitStack() as stack:
        for name, value in (
            ("finsy.p4client.grpc_channel", channel_to),
            ("finsy.gnmiclient.grpc_channel", channel_to),
            ("finsy.p4client.p4r_grpc.P4RuntimeStub", p4_stub),
            ("finsy.gnmiclient.gnmi_grpc.gNMIStub", lambda _channel: GnmiStub(holder.fabric.gnmi)),
            ("mrc_testbed.controller.api.rpc_client.RpcClient.connect", lambda path: holder.fabric.lines.connect(path)),
            ("mrc_testbed.controller.faults.journal.os.fdatasync", lambda _descriptor: None),
        ):
            stack.enter_context(mock.patch(name, value))
        stack.enter_context(mock.patch.object(time, "monotonic", loop.time))
        stack.enter_context(mock.patch.object(builtins, "print"))
        yield holder
