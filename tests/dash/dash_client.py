"""A client of the live view's server, as a browser would be one."""

from __future__ import annotations

import http.client
import json
import time

from mrc_testbed.dash.server import COMMAND_HEADER

WAIT_S = 15.0


def place_and_key(server):
    address, _, key = server.url.removeprefix("http://").partition("/?key=")
    return address, key


def request(server, path, *, key=None, host=None, method="GET", body=None, headers=None):
    """Return (status, text, headers) of a request, by default with the server's own key and Host."""
    address, server_key = place_and_key(server)
    port = int(address.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    fields = {
        "Host": host or address,
        "Cookie": f"mrc-dash-{port}={server_key if key is None else key}",
        **(headers or {}),
    }
    connection.request(method, path, body=body, headers=fields)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def command(server, line, **headers):
    address, _ = place_and_key(server)
    fields = {"Origin": f"http://{address}", COMMAND_HEADER: "1", "Content-Type": "application/json", **headers}
    fields = {name: value for name, value in fields.items() if value is not None}
    status, text, _ = request(server, "/command", method="POST", body=json.dumps({"command": line}), headers=fields)
    return status, json.loads(text)


class Watching:
    """A reader of the stream."""

    def __init__(self, server, last=None):
        address, key = place_and_key(server)
        port = int(address.rpartition(":")[2])
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        headers = {"Cookie": f"mrc-dash-{port}={key}"} | ({"Last-Event-ID": last} if last else {})
        self.connection.request("GET", "/stream", headers=headers)
        self.answer = self.connection.getresponse()

    def next(self):
        """Return (event, id, data) of the next event."""
        fields = {}
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if not line and "data" in fields:
                return fields["event"], fields["id"], json.loads(fields["data"])
            name, _, value = line.partition(": ")
            fields[name] = value

    def wait_for(self, condition):
        """Return the id of the first event whose data satisfies `condition`."""
        ends = time.monotonic() + WAIT_S
        while time.monotonic() < ends:
            _, number, data = self.next()
            if condition(data):
                return number
        raise AssertionError("the stream never told")

    def close(self):
        self.connection.close()
