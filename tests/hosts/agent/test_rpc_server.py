"""The table of operations: what a service registers, how an answer and an error reach the client."""

from __future__ import annotations

import ast
import itertools
import json
import re

import pytest

from hosts.agent.requests import RequestError
from hosts.agent.rpc_server import RpcServer, operations_of, rpc
from hosts.agent.services import admin, measurement, memory, paths, qp, traffic, transfers
from hosts.agent.tasks import Tasks
from ipc.rpc import JsonlError, ServerConnection
from tests.test_imports import ROOT

SERVICES = [
    admin.AdminService, measurement.MeasurementService, memory.MemoryService, paths.PathService, qp.QpService,
    traffic.TrafficService, transfers.TransferService,
]  # fmt: skip


class Adder:
    @rpc("add")
    def add(self, request, client):
        return {"sum": request["a"] + request["b"]}

    @rpc("add_later")
    def add_later(self, request, client):
        if request["a"] < 0:
            raise RequestError("a is negative")

        async def answer():
            if request["b"] < 0:
                raise RequestError("b is negative")
            return {"sum": request["a"] + request["b"]}

        return answer()

    def helper(self):
        """No operation."""


@pytest.fixture
def server():
    clock = itertools.count()
    made = RpcServer(Tasks(lambda: float(next(clock))), refusals=(RequestError,), host="h0")
    made.register(Adder())
    return made


def asked(server: RpcServer, **request):
    """What the client has been told once all has run, by handle's return or by a line."""
    lines: list[bytes] = []
    fields = server.handle({"id": 1, **request}, ServerConnection(lines.append))
    for _ in range(3):
        server._tasks.run()
    return fields if fields is not None else json.loads(lines[0])


def test_handle__answers_at_once_or_when_the_coroutine_has_ended(server):
    assert asked(server, op="add", a=1, b=2) == {"sum": 3}
    assert asked(server, op="add_later", a=1, b=2) == {"id": 1, "ok": True, "sum": 3}


def test_handle__refuses_at_once_or_later_in_the_words_of_the_error(server):
    with pytest.raises(JsonlError, match=r"^a is negative$"):
        asked(server, op="add_later", a=-1, b=2)
    assert asked(server, op="add_later", a=1, b=-2) == {"id": 1, "ok": False, "error": "b is negative"}


def test_handle__an_unknown_op_is_told_what_there_is(server):
    with pytest.raises(JsonlError, match=re.escape("no op 'helper' (has: add, add_later, watch)")):
        asked(server, op="helper")


def test_handle__a_bug_names_the_op_and_the_log(server):
    told = asked(server, op="add_later", a=1, b=None)
    assert told["error"].startswith("internal error in op add_later: TypeError: ")
    assert told["error"].endswith("(traceback in log/h0.log)")


def test_register__one_service_per_op(server):
    with pytest.raises(ValueError, match="Adder: add, add_later: served already"):
        server.register(Adder())
    with pytest.raises(TypeError, match="object serves no op"):
        server.register(object())


def test_register__watch_belongs_to_the_socket_server(server):
    class Watcher:
        @rpc("watch")
        def watch(self, request, client):
            return {}

    with pytest.raises(ValueError, match="Watcher: watch: served already"):
        server.register(Watcher())


def test_services__every_op_once_and_all_of_them():
    ops = [op for service in SERVICES for op in operations_of(object.__new__(service))]
    assert sorted(ops) == [
        "allow", "close_qp", "connect_qp", "create_qp", "deny", "denylist", "deregister", "ev_sweep", "finish_file",
        "flow_connect", "flow_qp", "flow_read", "flow_sink", "flow_source", "flow_stop", "health", "hello", "nic_rate",
        "post_write", "qp_state", "rank_link", "rank_open", "rank_start", "receive_file", "register", "register_file",
        "release", "run_writes", "send_file", "sha256", "shutdown", "status", "stop_work", "wait", "write_bw",
        "write_lat",
    ]  # fmt: skip


def test_services__know_no_agent():
    for path in (ROOT / "hosts" / "agent" / "services").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "hosts.agent.agent"), path
