"""The machines' file and its mistakes."""

import pytest

from mrc_testbed.topologies.servers import ServersError, read

SERVERS = """
user: root
port: 2222
machines:
  - {name: a, address: 192.0.2.11}
  - name: b
    address: b.example
    port: 22
    planes: [3]
  - {name: here, address: local, underlay: 192.0.2.10}
"""

ONE_MACHINE = "machines:\n  - {name: a, address: b}\n"
OPEN_MACHINE = "machines:\n  - {name: a, address: b"


def read_text(tmp_path, text):
    path = tmp_path / "servers.yaml"
    path.write_text(text)
    return read(path)


def test_read__keys_of_all_machines_and_each_ones_own(tmp_path):
    servers = read_text(tmp_path, SERVERS)
    assert [(machine.name, machine.user, machine.port, machine.is_local) for machine in servers.machines] == [
        ("a", "root", 2222, False),
        ("b", "root", 22, False),
        ("here", "root", 2222, True),
    ]
    assert servers.machine("b").planes == [3]
    with pytest.raises(ServersError, match=r"no machine 'x' \(has: a, b, here"):
        servers.machine("x")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "a mapping with `machines:`"),
        ("- a\n", "a mapping with `machines:`"),
        ("user: root\n", "no `machines:`: give"),
        ("machines: []\n", "line 1: machines: list should have at least 1 item"),
        ("machines:\n  - {name: a}\n", r"line 2: machines.0.address: field required"),
        (f"{ONE_MACHINE}  - {{name: c, address: d, adress: e}}\n", r"line 3: .* no such key \(has: name"),
        ("machnes:\n  - {name: a, address: b}\n", r"no such key \(has: machines, user, port"),
        ("machines:\n  - {name: a, address: '-oProxyCommand=x'}\n", "line 2: machines.0.address"),
        ("machines:\n  - {name: a, address: b, planes: [-1]}\n", "line 2: machines.0.planes.0: .*or equal to 0"),
        ("machines:\n  - {name: a, address: b, underlay: nowhere}\n", "machines.0.underlay: .*IPv4 or IPv6"),
        ("machines:\n  - {name: a, address: b, python: bin/python}\n", "machines.0.python"),
        ("machines:\n  - {name: a, address: b}\n  - {name: a, address: c}\n", "name a stands twice"),
        ("planes: [1]\n" + ONE_MACHINE, r"planes: no such key"),
        (f"{OPEN_MACHINE}, planes: [1]}}\n  - {{name: c, address: c, planes: [1]}}\n", "plane 1 stands twice"),
        ("machines:\n  - {name: a, address: local}\n  - {name: c, address: local}\n", "more than one machine has"),
        ("machines: [{name: a, address: b}\n", "line 2: "),
        ("machines: \x00\n", "not YAML"),
    ],
)
def test_read__mistakes_are_told_with_file_and_line(tmp_path, text, error):
    with pytest.raises(ServersError, match=error) as caught:
        read_text(tmp_path, text)
    assert "servers.yaml" in str(caught.value)


def test_read__no_file_and_no_text(tmp_path):
    with pytest.raises(ServersError, match=r"No such file or directory: give a file of machines"):
        read(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ServersError, match="not UTF-8 text"):
        read(tmp_path / "bytes.yaml")
