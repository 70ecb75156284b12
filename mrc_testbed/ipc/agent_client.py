"""Blocking client of one host's agent, for the front door, scenarios and tests.

    with AgentClient(run_dir / "agents/h0.sock") as h0:
        transfer = h0.send_file("big.bin", peer="h2")             # returns when it has begun
        for event in h0.watch(): ...                              # progress, ev, lost, port, transfer
        result = h0.wait(transfer["transfer"], timeout_s=60)

Every method raises AgentError, whose text begins with the host's name and the operation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mrc_testbed.ipc.rpc import JsonlClient, JsonlError, JsonlPeerError, Watch

CALL_TIMEOUT_S = 10.0
PEER_S = 30.0
"""Longest time for which an agent that calls a peer sends no answer, seconds.

ipc/rpc.py gives the peer up before.
"""


class AgentError(Exception):
    """Failed operation of an agent.

    `host` is the agent's host; `refused` separates a refusal by the agent from a failure to reach the agent.
    """

    def __init__(self, message: str, host: str, is_refusal: bool) -> None:
        super().__init__(message)
        self.host = host
        self.is_refusal = is_refusal


class AgentClient:
    """Calls to the agent listening on `path`; `host` is taken from the file's name (`h0.sock`).

    `works`: JsonlClient's.
    """

    def __init__(
        self, path: Path | str, *, timeout_s: float = CALL_TIMEOUT_S, works: Callable[[], bool] | None = None
    ) -> None:
        self.path = Path(path)
        self.host = self.path.stem
        self._client = JsonlClient(self.path, name=self.host, timeout_s=timeout_s, works=works)

    def call(self, op: str, *, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """Any operation (hosts/agent/services); the fields of its answer. None fields are left out.

        `patient` is JsonlClient's.
        """
        try:
            set_fields = {key: value for key, value in fields.items() if value is not None}
            return self._client.request(op, timeout_s=timeout_s, **set_fields)
        except JsonlError as error:
            raise AgentError(str(error), self.host, isinstance(error, JsonlPeerError)) from error

    def hello(self) -> dict[str, Any]:
        """Version, host, NIC, and the state of each port."""
        return self.call("hello")

    def status(self) -> dict[str, Any]:
        """QPs with their EV tables, planes, regions, transfers, counters, CPU time."""
        return self.call("status")

    def send_file(self, path: Path | str, peer: str, **options: Any) -> dict[str, Any]:
        """Begin to send a file to `peer`; `{"transfer": number, "qpn": ..., "length": ...}`.

        Options: `dest_path`, `rate_bps`, `chunk_bytes`, `pmtu`, `fresh` (a QP of its own), `transport` ("mrc", or
        "rocev2" for the single-path baseline), `sha256` (False: neither end hashes the file), `timeout_s` (of this
        call).
        """
        return self.call("send_file", path=str(Path(path).absolute()), peer=peer, **options)

    def wait(self, transfer: int, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the result of a transfer, when it has ended; None: waited for as long as the agent works.

        Raises AgentError when it failed or takes longer.
        """
        return self.call("wait", transfer=transfer, timeout_s=timeout_s)

    def post_write(self, **fields: int) -> int:
        """Post one write (qpn, region, offset, length, remote_va, rkey); its work request number."""
        return int(self.call("post_write", **fields)["wr_id"])

    def watch(self, *events: str) -> AgentWatch:
        """Events from now on (of those names, or all), on a connection of their own."""
        try:
            watch = self._client.watch(events=list(events)) if events else self._client.watch()
            return AgentWatch(watch, self.host)
        except JsonlError as error:
            raise AgentError(str(error), self.host, isinstance(error, JsonlPeerError)) from error

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> AgentClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AgentWatch:
    """Stream of an agent's events: iterate for all of them (ends with the agent), or `get` the next one."""

    def __init__(self, watch: Watch, host: str) -> None:
        self._watch = watch
        self.host = host

    def get(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """The next event; None when none came in time. Raises AgentError when the agent has gone."""
        try:
            return self._watch.get(timeout_s)
        except JsonlError as error:
            raise AgentError(str(error), self.host, False) from error

    def wait_for(self, event: str, *, timeout_s: float, **fields: Any) -> dict[str, Any]:
        """The first event of that name with those fields; others before it are passed over.

        Raises AgentError, naming what was seen, when it does not come in time.
        """
        deadline, passed_events = time.monotonic() + timeout_s, []
        while (remaining_s := deadline - time.monotonic()) > 0:
            got = self.get(remaining_s)
            if got is None:
                break
            if got["event"] == event and all(got.get(key) == value for key, value in fields.items()):
                return got
            passed_events.append(got["event"])
        condition = ", ".join((event, *(f"{key} = {value!r}" for key, value in fields.items())))
        raise AgentError(
            f"{self.host}: watch: no event {condition} in {timeout_s:g} s (saw {len(passed_events)}: "
            f"{', '.join(passed_events[-8:])})",
            self.host,
            False,
        )

    def fileno(self) -> int:
        return self._watch.fileno()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._watch)

    def close(self) -> None:
        self._watch.close()

    def __enter__(self) -> AgentWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
