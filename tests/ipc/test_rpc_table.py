"""The table of operations: what a service registers, how an answer and an error reach the client."""

from __future__ import annotations

import ast
import asyncio
import re

import pytest

from mrc_testbed.hosts.agent.services import admin, measurement, memory, paths, qp, traffic, transfers
from mrc_testbed.ipc.requests import Request, RequestError
from mrc_testbed.ipc.rpc import JsonlError, RpcCall, ServerConnection
from mrc_testbed.ipc.rpc_table import RpcTable, operations_of, rpc
from tests.repository import ROOT

SERVICES = [
    admin.AdminService,
    measurement.MeasurementService,
    memory.MemoryService,
    paths.PathService,
    qp.QpService,
    traffic.TrafficService,
    transfers.TransferService,
]


class Add(Request, tag="add"):
    a: int
    b: int


class AddLater(Request, tag="add_later"):
    a: int
    b: int


class Watching(Request, tag="watch"):
    pass


class TooBigError(Exception):
    pass


class Adder:
    @rpc(Add)
    def add(self, request, call):
        return {"sum": request.a + request.b}

    @rpc(AddLater)
    def add_later(self, request, call):
        if request.a < 0:
            raise RequestError("a is negative")

        async def answer():
            if request.b < 0:
                raise RequestError("b is negative")
            if request.b > 9:
                raise TooBigError("b is too big")
            return {"sum": request.a + 9 // request.b}

        return answer()

    def helper(self):
        """No operation."""


@pytest.fixture
def table():
    rpc_table = RpcTable(refusals=(TooBigError,), log_file="log/h0.log")
    rpc_table.register(Adder())
    return rpc_table


def answer_fields(table: RpcTable, **request):
    """Return the fields of the answer. Raises JsonlError when it is refused."""
    request = {"id": 1, **request}
    answer = table.handle(request, RpcCall(ServerConnection(lambda line: None), request))
    return answer if isinstance(answer, dict) else asyncio.run(answer)


def test_handle__answers_at_once_or_later(table):
    assert answer_fields(table, op="add", a=1, b=2) == {"sum": 3}
    assert answer_fields(table, op="add_later", a=1, b=3) == {"sum": 4}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"a": -1, "b": 2}, "a is negative"),
        ({"a": 1, "b": -2}, "b is negative"),
        ({"a": 1, "b": 10}, "b is too big"),
        ({"a": 1}, "add_later needs 'b' (int)"),
        ({"a": 1, "b": 2, "c": 3}, "add_later has no field 'c' (has: a, b)"),
    ],
)
def test_handle__refuses_in_the_words_of_the_error(table, fields, message):
    with pytest.raises(JsonlError) as caught:
        answer_fields(table, op="add_later", **fields)
    assert str(caught.value) == message


def test_handle__an_unknown_op_is_told_what_there_is(table):
    with pytest.raises(JsonlError, match=re.escape("no op 'helper' (has: add, add_later, watch)")):
        answer_fields(table, op="helper")


def test_handle__a_bug_names_the_op_and_the_log(table):
    with pytest.raises(JsonlError) as caught:
        answer_fields(table, op="add_later", a=1, b=0)
    assert str(caught.value).startswith("internal error in op add_later: ZeroDivisionError: ")
    assert str(caught.value).endswith("(traceback in log/h0.log)")


def test_register__one_service_per_op(table):
    with pytest.raises(ValueError, match="Adder: add, add_later: served already"):
        table.register(Adder())
    with pytest.raises(TypeError, match="object serves no op"):
        table.register(object())


def test_register__watch_belongs_to_the_socket_server(table):
    class Watcher:
        @rpc(Watching)
        def watch(self, request, call):
            return {}

    with pytest.raises(ValueError, match="Watcher: watch: served already"):
        table.register(Watcher())


def test_services__every_op_once_and_all_of_them():
    # Operations are of the class: services need not be initialised with their many dependencies.
    instances = [object.__new__(service) for service in SERVICES]
    # A list, not a set: an op that two services serve would stand here twice.
    ops = [op for instance in instances for op in operations_of(instance)]
    assert sorted(ops) == [
        "allow",
        "close_qp",
        "connect_qp",
        "create_qp",
        "deny",
        "denylist",
        "deregister",
        "ev_sweep",
        "finish_file",
        "flow_connect",
        "flow_qp",
        "flow_read",
        "flow_sink",
        "flow_source",
        "flow_stop",
        "health",
        "hello",
        "nic_rate",
        "peer_lost",
        "post_write",
        "qp_state",
        "rank_link",
        "rank_open",
        "rank_start",
        "receive_file",
        "register",
        "register_file",
        "release",
        "run_writes",
        "send_file",
        "sha256",
        "shutdown",
        "status",
        "stop_work",
        "wait",
        "write_bw",
        "write_lat",
    ]


def test_services__know_no_agent():
    for path in (ROOT / "hosts" / "agent" / "services").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "mrc_testbed.hosts.agent.agent"), path
