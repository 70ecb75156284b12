"""A hundred invalid requests of different kinds.

Each gets its code, words that help, and changes nothing.

Codes are those of the P4Runtime specification (v1.4; sections "Bytestrings", "TableEntry", "ActionProfileGroup", ...).
"""

from __future__ import annotations

import asyncio
from functools import lru_cache

import grpc
import pytest
from finsy.proto import U128, p4i, p4r, rpc_code
from google.protobuf import any_pb2

from mrc_testbed.switch.compiler import CompiledProgram, compile_program
from tests.switch.server.running_server import Client, error_details, primary_of, running_daemon, with_timeout

TEXT = """
#include <core.p4>
#include <v1model.p4>
enum bit<8> kind_t { A = 1 }
@controller_header("packet_out") header out_t { bit<9> port; bit<7> pad; }
header h_t { bit<32> a; bit<16> b; bit<8> c; bit<8> d; }
struct headers_t { out_t o; h_t h; }
struct metadata_t { }
struct seen_t { bit<32> a; }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<8>>(2) ports;
    state start { b.extract(h.h); transition select(h.h.d) { ports: more; default: accept; } }
    state more { transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets) hits;
    direct_meter<bit<2>>(MeterType.packets) rate;
    direct_meter<bit<2>>(MeterType.packets) rate_a;
    direct_meter<bit<2>>(MeterType.packets) rate_b;
    counter(4, CounterType.packets) cells;
    meter(4, MeterType.packets) rates;
    register<bit<12>>(4) words;
    register<int<6>>(4) signeds;
    register<bool>(4) flags;
    register<kind_t>(4) kinds;
    action forward(bit<9> port) { s.egress_spec = port; }
    action two(bit<8> x, bit<8> y) { h.h.c = x; h.h.d = y; }
    action drop() { mark_to_drop(s); }
    action metered(bit<9> port) { s.egress_spec = port; bit<2> colour; rate.read(colour); }
    action metered_a(bit<9> port) { s.egress_spec = port; bit<2> colour; rate_a.read(colour); }
    action metered_b(bit<9> port) { s.egress_spec = port; bit<2> colour; rate_b.read(colour); }
    table route { key = { h.h.a : lpm; } actions = { forward; two; @tableonly drop; @defaultonly NoAction; }
                  counters = hits; size = 3; }
    table exact_t { key = { h.h.a : exact; h.h.b : exact; } actions = { forward; } support_timeout = true; }
    table acl { key = { h.h.b : ternary; h.h.c : range; h.h.d : optional; } actions = { forward; drop; } }
    table fixed { key = { h.h.c : exact; } actions = { forward; drop; } const default_action = drop();
                  const entries = { 1 : forward(1); 2 : forward(2); } }
    table begun { key = { h.h.c : exact; } actions = { forward; } entries = { const 1 : forward(1); 2 : forward(2); } }
    table keyless { actions = { forward; drop; } }
    table limited { key = { h.h.a : exact; } actions = { metered; } meters = rate; }
    @max_group_size(4) action_selector(HashAlgorithm.crc16, 8, 16) sel;
    action_profile(2) prof;
    table pick { key = { h.h.a : exact; h.h.b : selector; } actions = { forward; metered_a; } implementation = sel;
                 meters = rate_a; }
    table member_t { key = { h.h.a : exact; } actions = { forward; metered_b; } implementation = prof;
                     meters = rate_b; }
    apply {
        bit<2> colour;
        cells.count(0); rates.execute_meter(1, colour); words.write(0, 1); signeds.write(0, 1); flags.write(0, true);
        kinds.write(0, kind_t.A); digest<seen_t>(1, { h.h.a });
        route.apply(); exact_t.apply(); acl.apply(); fixed.apply(); begun.apply(); keyless.apply(); limited.apply();
        pick.apply(); member_t.apply();
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out b, in headers_t h) { apply { b.emit(h.h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""
INVALID, NOT_FOUND, EXISTS, RANGE = (
    rpc_code.INVALID_ARGUMENT,
    rpc_code.NOT_FOUND,
    rpc_code.ALREADY_EXISTS,
    rpc_code.OUT_OF_RANGE,
)
NO_ROOM, DENIED, PRECONDITION, NO_SUPPORT = (
    rpc_code.RESOURCE_EXHAUSTED,
    rpc_code.PERMISSION_DENIED,
    rpc_code.FAILED_PRECONDITION,
    rpc_code.UNIMPLEMENTED,
)
UNKNOWN_ID = 0x12345678
"""No object has this id."""
CODES = grpc.StatusCode
INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


@lru_cache(maxsize=1)
def program() -> CompiledProgram:
    return compile_program(TEXT)


@lru_cache(maxsize=1)
def ids() -> dict[str, int]:
    info = program().p4info
    return {
        object_info.preamble.alias: object_info.preamble.id
        for field, objects in info.ListFields()
        if field.is_repeated
        for object_info in objects
    }


def config() -> p4r.ForwardingPipelineConfig:
    return p4r.ForwardingPipelineConfig(p4info=program().p4info, p4_device_config=program().config)


# ---- updates, written as dicts: @NAME is the id of an object ---------------------------------------------------------


def resolve(value):
    if isinstance(value, dict):
        return {key: resolve(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(element) for element in value]
    return ids().get(value[1:], UNKNOWN_ID) if isinstance(value, str) and value.startswith("@") else value


def act(name: str, *params: tuple[int, bytes]) -> dict:
    return {"action": {"action_id": "@" + name, "params": [{"param_id": i, "value": v} for i, v in params]}}


FORWARD = act("forward", (1, b"\1"))
METER = {"meter_config": {"cir": 1, "cburst": 1, "pir": 1, "pburst": 1}}
A5 = {"field_id": 1, "exact": {"value": b"\5"}}
A6 = {"field_id": 1, "exact": {"value": b"\6"}}


def lpm(value: bytes = b"\x0a\0\0\0", length: int = 8, **extra) -> dict:
    match = [{"field_id": 1, "lpm": {"value": value, "prefix_len": length}}]
    return {"table_entry": {"table_id": "@route", "match": match, "action": FORWARD, **extra}}


def entry(table: str, *match: dict, **extra) -> dict:
    return {"table_entry": {"table_id": "@" + table, "match": list(match), "action": FORWARD, **extra}}


def acl(*match: dict, **extra) -> dict:
    return entry("acl", *match, **{"priority": 5, **extra})


def two(*params: tuple[int, bytes]) -> dict:
    return lpm(action=act("two", *params))


def member(number: int, profile: str = "sel", **extra) -> dict:
    sent = {"action_profile_id": "@" + profile, "member_id": number, **FORWARD, **extra}
    return {"action_profile_member": sent}


def group(number: int, *members: dict, profile: str = "sel", **extra) -> dict:
    sent = {"action_profile_id": "@" + profile, "group_id": number, "members": list(members), **extra}
    return {"action_profile_group": sent}


def group_member(number: int, weight: int = 1, **extra) -> dict:
    return {"member_id": number, "weight": weight, **extra}


def shot(*actions: dict) -> dict:
    return entry("pick", A6, action={"action_profile_action_set": {"action_profile_actions": list(actions)}})


def cell(kind: str, name: str, index: int | None, **data) -> dict:
    number = {f"{kind}_id": "@" + name}
    index_fields = {} if index is None else {"index": {"index": index}}
    return {f"{kind}_entry": {**number, **index_fields, **data}}


def session(number: int, *ports: int, **extra) -> dict:
    replicas = [{"egress_port": port, "instance": 1} for port in ports]
    entry_ = {"session_id": number, "replicas": replicas, **extra}
    return {"packet_replication_engine_entry": {"clone_session_entry": entry_}}


def multicast(number: int, *replicas: dict) -> dict:
    entry_ = {"multicast_group_id": number, "replicas": list(replicas)}
    return {"packet_replication_engine_entry": {"multicast_group_entry": entry_}}


def members(*values: bytes, field: int = 1) -> dict:
    sent = [{"match": [{"field_id": field, "exact": {"value": value}}]} for value in values]
    return {"value_set_entry": {"value_set_id": "@ports", "members": sent}}


DEFAULT = {"is_default_action": True}
BAD_UPDATES: dict[str, tuple[int, dict, int, str]] = {
    # what an update is
    "no entity": (INSERT, {}, INVALID, "without an entity"),
    "no type": (0, lpm(), INVALID, "want INSERT, MODIFY or DELETE"),
    "unknown type": (9, lpm(), INVALID, "want INSERT, MODIFY or DELETE"),
    "extern entry": (INSERT, {"extern_entry": {"extern_id": 1}}, NO_SUPPORT, "extern_entry cannot be written"),
    # tables and keys
    "table 0": (INSERT, {"table_entry": {"action": FORWARD}}, INVALID, "no table with id 0"),
    "id of an action": (INSERT, {"table_entry": {"table_id": "@forward"}}, INVALID, "has: route"),
    "exact left out": (INSERT, entry("exact_t", A5), INVALID, "is exact, so it must be given"),
    "no such field": (INSERT, entry("exact_t", A5, {**A5, "field_id": 9}), INVALID, "exact_t"),
    "field twice": (INSERT, entry("exact_t", A5, A5), INVALID, "1 is given twice"),
    "field without a match": (INSERT, entry("limited", {"field_id": 1}), INVALID, "leave the field out"),
    "another kind of match": (INSERT, entry("route", A5), INVALID, "is matched lpm, got exact"),
    "other match": (INSERT, entry("route", {"field_id": 1, "other": {}}), NO_SUPPORT, "other"),
    "empty value": (INSERT, entry("limited", {"field_id": 1, "exact": {"value": b""}}), INVALID, "empty byte string"),
    "wide value": (INSERT, entry("limited", {"field_id": 1, "exact": {"value": b"\1" * 5}}), RANGE, "32 bits"),
    "lpm of 0 bits": (INSERT, lpm(b"\0", 0), INVALID, "to match all leave the field out"),
    "lpm too long": (INSERT, lpm(b"\0", 33), INVALID, "33 is not in 1..32"),
    "lpm negative": (INSERT, lpm(b"\0", -1), INVALID, "-1 is not in"),
    "bits behind the prefix": (INSERT, lpm(b"\x0a\0\0\1"), INVALID, "outside the mask"),
    "mask 0": (INSERT, acl({"field_id": 1, "ternary": {"value": b"\0", "mask": b"\0"}}), INVALID, "mask 0"),
    "bits outside the mask": (
        INSERT,
        acl({"field_id": 1, "ternary": {"value": b"\3", "mask": b"\1"}}),
        INVALID,
        "outside the mask",
    ),
    "wide mask": (INSERT, acl({"field_id": 1, "ternary": {"value": b"\1", "mask": b"\1\0\1"}}), RANGE, "mask"),
    "empty range": (INSERT, acl({"field_id": 2, "range": {"low": b"\2", "high": b"\1"}}), INVALID, "is empty"),
    "whole range": (INSERT, acl({"field_id": 2, "range": {"low": b"\0", "high": b"\xff"}}), INVALID, "leave the field"),
    "wide range": (INSERT, acl({"field_id": 2, "range": {"low": b"\0", "high": b"\1\0"}}), RANGE, "high"),
    "empty optional": (INSERT, acl({"field_id": 3, "optional": {"value": b""}}), INVALID, "empty byte string"),
    "no priority": (INSERT, acl(priority=0), INVALID, "needs a priority"),
    "negative priority": (INSERT, acl(priority=-1), INVALID, "needs a priority"),
    "priority too much": (INSERT, lpm(priority=1), INVALID, "priority must be 0"),
    "entry of a keyless table": (INSERT, entry("keyless"), INVALID, "only its default entry"),
    # actions
    "no action": (INSERT, lpm(action={}), INVALID, "needs an action"),
    "unknown action": (INSERT, lpm(action={"action": {"action_id": 77}}), INVALID, "has: drop, forward, two"),
    "action of another table": (INSERT, entry("limited", A5), INVALID, "no action 'forward'"),
    "scope: default only": (INSERT, lpm(action=act("NoAction")), DENIED, "for the default entry only"),
    "scope: table only": (
        MODIFY,
        {"table_entry": {"table_id": "@route", **DEFAULT, "action": act("drop")}},
        DENIED,
        "for entries only",
    ),
    "parameter missing": (INSERT, two((1, b"\1")), INVALID, "has the parameters x 1, y 2; got 1"),
    "parameter too much": (INSERT, two((1, b"\1"), (2, b"\1"), (3, b"\1")), INVALID, "got 1, 2, 3"),
    "parameter twice": (INSERT, two((1, b"\1"), (1, b"\1"), (2, b"\1")), INVALID, "got 1, 1, 2"),
    "empty parameter": (INSERT, two((1, b""), (2, b"\1")), INVALID, "empty byte string"),
    "wide parameter": (INSERT, lpm(action=act("forward", (1, b"\2\0"))), RANGE, "9 bits"),
    "member for a direct table": (
        INSERT,
        lpm(action={"action_profile_member_id": 1}),
        INVALID,
        "has no action profile",
    ),
    "action for an indirect table": (INSERT, entry("pick", A5), INVALID, "give a member or group"),
    "member that is not there": (
        INSERT,
        entry("pick", A6, action={"action_profile_member_id": 9}),
        NOT_FOUND,
        "no member 9 in sel (has: 1",
    ),
    "group that is not there": (
        INSERT,
        entry("pick", A6, action={"action_profile_group_id": 9}),
        NOT_FOUND,
        "no group 9 in sel (has: 1",
    ),
    "group for a profile": (
        INSERT,
        entry("member_t", A5, action={"action_profile_group_id": 1}),
        INVALID,
        "no action selector",
    ),
    "meter of a member's action": (
        INSERT,
        entry("member_t", A6, action={"action_profile_member_id": 1}, **METER),
        INVALID,
        "forward does not read the direct meter",
    ),
    "meter of a one-shot action": (
        INSERT,
        {"table_entry": {**shot({**FORWARD, "weight": 1})["table_entry"], **METER}},
        INVALID,
        "forward does not read the direct meter",
    ),
    # what is there, what is not, what is full
    "insert again": (INSERT, lpm(), EXISTS, "is there already"),
    "modify nothing": (MODIFY, lpm(b"\x0b\0\0\0"), NOT_FOUND, "no such entry"),
    "delete nothing": (DELETE, lpm(b"\x0b\0\0\0"), NOT_FOUND, "no such entry"),
    "table full": (INSERT, lpm(b"\x0f\0\0\0"), NO_ROOM, "room for 3 entries"),
    "insert a default": (INSERT, {"table_entry": {"table_id": "@route", **DEFAULT}}, INVALID, "only be modified"),
    "delete a default": (DELETE, {"table_entry": {"table_id": "@route", **DEFAULT}}, INVALID, "only be modified"),
    "default with a match": (MODIFY, lpm(**DEFAULT), INVALID, "no match and no priority"),
    "const default": (
        MODIFY,
        {"table_entry": {"table_id": "@fixed", **DEFAULT, "action": FORWARD}},
        DENIED,
        "const in the program",
    ),
    "default of a table with a selector": (
        MODIFY,
        {"table_entry": {"table_id": "@pick", **DEFAULT, "action": FORWARD}},
        DENIED,
        "is constant",
    ),
    "default of a table with a profile": (
        MODIFY,
        {"table_entry": {"table_id": "@member_t", **DEFAULT}},
        DENIED,
        "const",
    ),
    "const table: insert": (INSERT, entry("fixed", A5), DENIED, "const in the program"),
    "const table: modify": (MODIFY, entry("fixed", {"field_id": 1, "exact": {"value": b"\1"}}), DENIED, "const"),
    "const table: delete": (DELETE, entry("fixed", {"field_id": 1, "exact": {"value": b"\1"}}), DENIED, "const"),
    "const entry: modify": (MODIFY, entry("begun", {"field_id": 1, "exact": {"value": b"\1"}}), DENIED, "const"),
    "const entry: delete": (DELETE, entry("begun", {"field_id": 1, "exact": {"value": b"\1"}}), DENIED, "const"),
    "is_const": (INSERT, lpm(b"\x0c\0\0\0", is_const=True), INVALID, "is_const is for reading"),
    # direct resources and idle timeouts
    "no direct counter": (INSERT, acl(counter_data={"packet_count": 1}), INVALID, "has no direct counter"),
    "negative direct counter": (MODIFY, lpm(counter_data={"packet_count": -1}), INVALID, "negative"),
    "no direct meter": (MODIFY, lpm(meter_config={"cir": 1, "pir": 1}), INVALID, "has no direct meter"),
    "meter counters": (MODIFY, lpm(meter_counter_data={}), NO_SUPPORT, "meters do not count"),
    "no idle timeouts": (MODIFY, lpm(idle_timeout_ns=5), INVALID, "without support_timeout"),
    "negative timeout": (
        INSERT,
        entry("exact_t", A5, {**A5, "field_id": 2}, idle_timeout_ns=-5),
        INVALID,
        "is not in 0",
    ),
    "time since last hit": (MODIFY, lpm(time_since_last_hit={}), INVALID, "is for reading"),
    "direct counter of nothing": (
        MODIFY,
        {"direct_counter_entry": {**lpm(b"\x0b\0\0\0"), "data": {"packet_count": 1}}},
        NOT_FOUND,
        "no such",
    ),
    "direct counter inserted": (INSERT, {"direct_counter_entry": {**lpm()}}, INVALID, "only MODIFY them"),
    "direct counter without one": (
        MODIFY,
        {"direct_counter_entry": {**entry("fixed", {"field_id": 1, "exact": {"value": b"\1"}}), "data": {}}},
        INVALID,
        "has no direct counter",
    ),
    "direct meter of nothing": (MODIFY, {"direct_meter_entry": {**entry("limited", A5)}}, NOT_FOUND, "no such entry"),
    "direct meter deleted": (DELETE, {"direct_meter_entry": {**entry("limited", A5)}}, INVALID, "only MODIFY them"),
    "direct meter without one": (MODIFY, {"direct_meter_entry": {**lpm()}}, INVALID, "has no direct meter"),
    # action profiles
    "unknown profile": (INSERT, member(1, "nothing"), INVALID, "no action profile with id"),
    "member 0": (INSERT, member(0), INVALID, "member id 0"),
    "member without an action": (INSERT, member(7, action={}), INVALID, "no action with id 0"),
    "member again": (INSERT, member(1), EXISTS, "member 1 is there already"),
    "modify no member": (MODIFY, member(7), NOT_FOUND, "no such member 7"),
    "member in use": (DELETE, member(1), PRECONDITION, "member 1 is in use"),
    "profile full": (INSERT, member(3, "prof"), NO_ROOM, "room for 2 members"),
    "group of a profile": (INSERT, group(1, profile="prof"), INVALID, "is no action selector"),
    "group 0": (INSERT, group(0), INVALID, "group id 0"),
    "group again": (INSERT, group(1), EXISTS, "group 1 is there already"),
    "group of no member": (INSERT, group(7, group_member(9)), NOT_FOUND, "no member 9 (has: 1, 2)"),
    "weight 0": (INSERT, group(7, group_member(1, 0)), INVALID, "weight 0"),
    "negative weight": (INSERT, group(7, group_member(1, -1)), INVALID, "weight -1"),
    "member twice": (INSERT, group(7, group_member(1), group_member(1)), INVALID, "a member is given twice"),
    "max_size beyond": (INSERT, group(7, max_size=5), INVALID, "max_size 5 is not in 0..4"),
    "max_size changed": (MODIFY, group(1, group_member(1), max_size=3), INVALID, "cannot become 3"),
    "weights beyond": (INSERT, group(7, group_member(1, 5)), NO_ROOM, "weights sum to 5, at most 4"),
    "watch port": (INSERT, group(7, group_member(1, watch_port=b"\2\0")), INVALID, "watch port 512"),
    "negative watch": (INSERT, group(7, group_member(1, watch=-3)), INVALID, "watch -3"),
    "group in use": (DELETE, group(1), PRECONDITION, "group 1 is in use"),
    "one-shot beside members": (INSERT, shot({**FORWARD, "weight": 1}), INVALID, "cannot be mixed"),
    "one-shot too large": (INSERT, shot({**FORWARD, "weight": 5}), INVALID, "weights sum to 5, at most 4"),
    "one-shot: 1.5's modes": (
        INSERT,
        entry("pick", A6, action={"action_profile_action_set": {"action_selection_mode": 2}}),
        NO_SUPPORT,
        "leave them out",
    ),
    # cells
    "no such counter": (MODIFY, cell("counter", "nothing", 0, data={}), INVALID, "no counter with id"),
    "counter inserted": (INSERT, cell("counter", "cells", 0, data={}), INVALID, "only MODIFY them"),
    "counter index": (MODIFY, cell("counter", "cells", 4, data={}), RANGE, "index 4 is not in 0..3"),
    "negative index": (MODIFY, cell("counter", "cells", -1, data={}), INVALID, "negative"),
    "negative count": (MODIFY, cell("counter", "cells", 0, data={"packet_count": -1}), INVALID, "negative"),
    "no such meter": (MODIFY, cell("meter", "nothing", 0), INVALID, "no meter with id"),
    "meter index": (MODIFY, cell("meter", "rates", 4), RANGE, "index 4"),
    "pir below cir": (MODIFY, cell("meter", "rates", 0, config={"cir": 2, "pir": 1}), INVALID, "pir not below cir"),
    "negative rate": (MODIFY, cell("meter", "rates", 0, config={"cir": -1}), INVALID, "rates and bursts"),
    "excess burst": (MODIFY, cell("meter", "rates", 0, config={"eburst": 1}), INVALID, "eburst"),
    "meter deleted": (DELETE, cell("meter", "rates", 0), INVALID, "only MODIFY them"),
    "no such register": (MODIFY, cell("register", "nothing", 0, data={}), INVALID, "no register with id"),
    "register without data": (MODIFY, cell("register", "words", 0), INVALID, "data.bitstring, got no data"),
    "register of another type": (MODIFY, cell("register", "words", 0, data={"bool": True}), INVALID, "got bool"),
    "bool register": (MODIFY, cell("register", "flags", 0, data={"bitstring": b"\1"}), INVALID, "data.bool"),
    "enum register": (MODIFY, cell("register", "kinds", 0, data={"enum": "A"}), INVALID, "data.enum_value"),
    "wide register value": (MODIFY, cell("register", "words", 0, data={"bitstring": b"\x10\0"}), RANGE, "12 bits"),
    "wide signed value": (MODIFY, cell("register", "signeds", 0, data={"bitstring": b"\x20"}), RANGE, "int<6>"),
    "register index": (MODIFY, cell("register", "words", 9, data={"bitstring": b"\1"}), RANGE, "index 9"),
    # replication, digests, value sets
    "no kind of replication": (INSERT, {"packet_replication_engine_entry": {}}, INVALID, "multicast group or a clone"),
    "multicast group 0": (INSERT, multicast(0), INVALID, "1 to 65535"),
    "multicast group beyond": (INSERT, multicast(1 << 16), INVALID, "1 to 65535"),
    "replica twice": (INSERT, multicast(9, {"egress_port": 1}, {"egress_port": 1}), INVALID, "given twice"),
    "replica at port 511": (INSERT, multicast(9, {"egress_port": 511}), INVALID, "not in 0..510"),
    "replica without a port": (INSERT, multicast(9, {"port": b""}), INVALID, "empty byte string"),
    "instance beyond": (INSERT, multicast(9, {"egress_port": 1, "instance": 1 << 16}), INVALID, "0..65535"),
    "backup replicas": (
        INSERT,
        multicast(9, {"port": b"\1", "backup_replicas": [{"port": b"\2"}]}),
        NO_SUPPORT,
        "backup",
    ),
    "modify no group": (MODIFY, multicast(9), NOT_FOUND, "does not exist (has: none)"),
    "session 0": (INSERT, session(0, 1), INVALID, "for reading all"),
    "session again": (INSERT, session(1, 1), EXISTS, "is there already"),
    "class of service": (INSERT, session(2, 1, class_of_service=8), INVALID, "0 to 7"),
    "negative length": (INSERT, session(2, 1, packet_length_bytes=-1), INVALID, "length 0 to"),
    "delete no session": (DELETE, session(9), NOT_FOUND, "does not exist (has: 1)"),
    "unknown digest": (INSERT, {"digest_entry": {"digest_id": 5}}, INVALID, "no digest 5"),
    "digest not configured": (MODIFY, {"digest_entry": {"digest_id": "@seen_t"}}, NOT_FOUND, "insert it first"),
    "digest config": (
        INSERT,
        {"digest_entry": {"digest_id": "@seen_t", "config": {"max_list_size": -1}}},
        INVALID,
        "not be < 0",
    ),
    "value set inserted": (INSERT, members(b"\1"), INVALID, "only MODIFY them"),
    "value set full": (MODIFY, members(b"\1", b"\2", b"\3"), NO_ROOM, "room for 2 members"),
    "value set member twice": (MODIFY, members(b"\1", b"\1"), EXISTS, "given twice"),
    "value set field": (MODIFY, members(b"\1", field=2), INVALID, "must be given"),
    "no such value set": (MODIFY, {"value_set_entry": {"value_set_id": 7}}, INVALID, "no value set with id 7"),
}


def update(kind: int, entity: dict) -> p4r.Update:
    out = p4r.Update(type=kind)
    if entity:
        _fill(out.entity, resolve(entity))
    return out


def _fill(message, values: dict) -> None:
    """Fill a message as json_format.ParseDict, with bytes for bytes; an empty dict sets the message."""
    for name, value in values.items():
        if isinstance(value, dict):
            part = getattr(message, name)
            part.SetInParent()
            _fill(part, value)
        elif isinstance(value, list):
            for element in value:
                _fill(getattr(message, name).add(), element)
        else:
            setattr(message, name, value)


ALL_ENTITIES = [
    p4r.Entity(**{kind: {}})
    for kind in (
        "table_entry",
        "action_profile_member",
        "action_profile_group",
        "counter_entry",
        "register_entry",
        "meter_entry",
        "packet_replication_engine_entry",
        "digest_entry",
        "value_set_entry",
    )
] + [p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True))]


async def prepare(client: Client) -> list[p4r.Entity]:
    await client.set_pipeline(config())
    entities = [
        lpm(),
        lpm(b"\x0c\0\0\0"),
        lpm(b"\x0d\0\0\0"),
        member(1),
        member(2),
        member(1, "prof"),
        member(2, "prof"),
        group(1, group_member(1)),
        entry("pick", A5, action={"action_profile_group_id": 1}),
        session(1, 3),
    ]
    await client.write(*(update(INSERT, entity) for entity in entities))
    return await client.read(*ALL_ENTITIES)


def test_updates__each_has_its_code_and_changes_nothing():
    assert len(BAD_UPDATES) >= 100

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            entities_before = await prepare(client)
            failures = []
            for name, (kind, entity, code, words) in BAD_UPDATES.items():
                try:
                    await client.write(update(kind, entity))
                    failures.append((name, "was done"))
                except grpc.aio.AioRpcError as error:
                    (detail,) = error_details(error)
                    is_right_code = error.code() is CODES.UNKNOWN and detail.canonical_code == code
                    if not is_right_code or words not in detail.message:
                        failures.append((name, rpc_code.Code.Name(detail.canonical_code), detail.message))
            assert not failures
            assert await client.read(*ALL_ENTITIES) == entities_before
            with pytest.raises(grpc.aio.AioRpcError) as caught:  # and all in one batch: an error for each, in order
                await client.write(*(update(kind, entity) for kind, entity, _, _ in BAD_UPDATES.values()))
            codes = [error_detail.canonical_code for error_detail in error_details(caught.value)]
            assert codes == [code for _, _, code, _ in BAD_UPDATES.values()]
            assert await client.read(*ALL_ENTITIES) == entities_before

    asyncio.run(check())


# ---- whole requests --------------------------------------------------------------------------------------------------


def _write(**fields) -> p4r.WriteRequest:
    return p4r.WriteRequest(**{"device_id": 1, "election_id": U128.encode(1), **fields})


def _set(**fields) -> p4r.SetForwardingPipelineConfigRequest:
    base = {"device_id": 1, "election_id": U128.encode(1), "action": 3, "config": config()}
    return p4r.SetForwardingPipelineConfigRequest(**{**base, **fields})


def _other_info(change) -> p4r.ForwardingPipelineConfig:
    out = config()
    change(out.p4info)
    return out


def _read(*entities: dict, **fields) -> p4r.ReadRequest:
    return p4r.ReadRequest(**{"device_id": 1, **fields}, entities=[update(0, entity).entity for entity in entities])


def bad_requests() -> dict[str, tuple[object, grpc.StatusCode, str]]:
    return {
        # Errors of a whole request carry their code in the status; those of a Read's entities are UNKNOWN with details
        "write: no device": (_write(device_id=9), CODES.NOT_FOUND, "has: 1"),
        "write: no role": (_write(role="x"), CODES.NOT_FOUND, "no role 'x'"),
        "write: no election id": (p4r.WriteRequest(device_id=1), CODES.PERMISSION_DENIED, "no election id"),
        "write: election id": (_write(election_id=U128.encode(7)), CODES.PERMISSION_DENIED, "the primary has 1"),
        "write: atomicity": (_write(atomicity=7), CODES.INVALID_ARGUMENT, "DATAPLANE_ATOMIC"),
        "set: no device": (_set(device_id=9), CODES.NOT_FOUND, "has: 1"),
        "set: election id": (_set(election_id=U128.encode(7)), CODES.PERMISSION_DENIED, "the primary has 1"),
        "set: no action": (_set(action=0), CODES.INVALID_ARGUMENT, "VERIFY_AND_COMMIT"),
        "set: no config": (_set(config=None), CODES.INVALID_ARGUMENT, "p4_device_config is empty"),
        "set: no p4info": (
            _set(config=p4r.ForwardingPipelineConfig(p4_device_config=b"x")),
            CODES.INVALID_ARGUMENT,
            "no p4info",
        ),
        "set: JSON": (
            _set(config=p4r.ForwardingPipelineConfig(p4_device_config=b"{}", p4info=p4i.P4Info())),
            CODES.INVALID_ARGUMENT,
            "BMv2",
        ),
        "set: no text": (
            _set(config=p4r.ForwardingPipelineConfig(p4_device_config=b"\xff\xfe", p4info=p4i.P4Info())),
            CODES.INVALID_ARGUMENT,
            "UTF-8",
        ),
        "set: no program": (
            _set(config=p4r.ForwardingPipelineConfig(p4_device_config=b"table t;", p4info=p4i.P4Info())),
            CODES.INVALID_ARGUMENT,
            "1:",
        ),
        "set: another size": (
            _set(config=_other_info(lambda info: setattr(info.tables[0], "size", 9))),
            CODES.INVALID_ARGUMENT,
            "size",
        ),
        "set: an action more": (
            _set(config=_other_info(lambda info: info.actions.add())),
            CODES.INVALID_ARGUMENT,
            "actions: ",
        ),
        "set: commit with a config": (_set(action=4), CODES.INVALID_ARGUMENT, "takes no config"),
        "set: commit of nothing": (_set(action=4, config=None), CODES.NOT_FOUND, "without a VERIFY_AND_SAVE"),
        "get: no device": (p4r.GetForwardingPipelineConfigRequest(device_id=9), CODES.NOT_FOUND, "has: 1"),
        "get: response type": (
            p4r.GetForwardingPipelineConfigRequest(device_id=1, response_type=9),
            CODES.INVALID_ARGUMENT,
            "COOKIE_ONLY",
        ),
        "read: no device": (_read(device_id=9), CODES.NOT_FOUND, "has: 1"),
        "read: no kind": (_read({}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: extern": (_read({"extern_entry": {}}), CODES.UNKNOWN, "UNIMPLEMENTED"),
        "read: table": (_read({"table_entry": {"table_id": 7}}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: match without a table": (_read({"table_entry": {"match": [A5]}}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: time of the last hit": (
            _read({"table_entry": {"table_id": "@route", "time_since_last_hit": {}}}),
            CODES.UNKNOWN,
            "INVALID_ARGUMENT",
        ),
        "read: counter": (_read(cell("counter", "nothing", None)), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: index": (_read(cell("counter", "cells", 4)), CODES.UNKNOWN, "OUT_OF_RANGE"),
        "read: index of all": (_read({"meter_entry": {"index": {"index": 1}}}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: direct counter": (_read({"direct_counter_entry": {**entry("acl")}}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: direct counter of nothing": (
            _read({"direct_counter_entry": {**lpm(b"\x0b\0\0\0")}}),
            CODES.UNKNOWN,
            "NOT_FOUND",
        ),
        "read: direct meter": (_read({"direct_meter_entry": {**lpm()}}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: meter counters": (
            _read({"meter_entry": {"meter_id": "@rates", "counter_data": {}}}),
            CODES.UNKNOWN,
            "UNIMPLEMENTED",
        ),
        "read: profile": (_read({"action_profile_group": {"action_profile_id": 5}}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: digest": (_read({"digest_entry": {"digest_id": 5}}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
        "read: value set": (_read({"value_set_entry": {"value_set_id": 5}}), CODES.UNKNOWN, "INVALID_ARGUMENT"),
    }


def test_requests__each_has_its_code_and_changes_nothing():
    async def call_rpc(client: Client, request) -> None:
        name = type(request).__name__.removesuffix("Request")
        answer = getattr(client.stub, name)(request)
        if name == "Read":
            async for _ in answer:
                pass
        else:
            await with_timeout(answer)

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            entities_before = await prepare(client)
            failures = []
            for name, (request, code, words) in bad_requests().items():
                try:
                    await call_rpc(client, request)
                    failures.append((name, "was done"))
                except grpc.aio.AioRpcError as error:
                    details = [rpc_code.Code.Name(error_detail.canonical_code) for error_detail in error_details(error)]
                    if error.code() is not code or words not in f"{error.details()} {details}":
                        failures.append((name, error.code(), error.details(), details))
            assert not failures
            assert await client.read(*ALL_ENTITIES) == entities_before

    asyncio.run(check())


# ---- the stream ------------------------------------------------------------------------------------------------------


def _packet(*metadata: tuple[int, bytes]) -> p4r.StreamMessageRequest:
    out = p4r.PacketOut(payload=bytes(8))
    for number, value in metadata:
        out.metadata.add(metadata_id=number, value=value)
    return p4r.StreamMessageRequest(packet=out)


BAD_MESSAGES = {
    "no kind": (p4r.StreamMessageRequest(), INVALID, "kind none"),
    "other": (p4r.StreamMessageRequest(other=any_pb2.Any()), INVALID, "kind other"),
    "packet without metadata": (_packet(), INVALID, "1 port is missing"),
    "packet with unknown metadata": (_packet((1, b"\1"), (2, b"\1"), (7, b"\1")), INVALID, "has: 1 port, 2 pad"),
    "packet with metadata twice": (_packet((1, b"\1"), (1, b"\1"), (2, b"\1")), INVALID, "given twice"),
    "packet with empty metadata": (_packet((1, b""), (2, b"\1")), INVALID, "empty byte string"),
    "packet with wide metadata": (_packet((1, b"\2\0"), (2, b"\1")), RANGE, "9 bits"),
    "ack of no digest": (p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=5)), INVALID, "no digest 5"),
}  # fmt: skip


def test_stream__bad_messages_are_answered_and_it_stays_open():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(config())
            for name, (message, code, words) in BAD_MESSAGES.items():
                await client.stream.write(message)
                error = (await client.next_message()).error
                assert error.canonical_code == code and words in error.message, (name, error)
            await client.send_bid(2)
            assert await client.next_status() == rpc_code.OK

    asyncio.run(check())
