"""gNMI paths and values, without a server."""

from __future__ import annotations

import grpc
import pytest
from finsy import GNMIPath
from finsy.proto import gnmi

from mrc_testbed.switch.server.gnmi.tree import (
    ALL_LEAVES,
    GnmiError,
    PathPattern,
    check_encoding,
    is_wide,
    parse_path,
    typed_value,
)
from mrc_testbed.switch.server.interfaces import COUNTER_LEAVES, LEAVES

NO_PREFIX = gnmi.Path()


def selected_leaves(path: str, prefix: gnmi.Path = NO_PREFIX) -> tuple[str | None, set[str]]:
    pattern = parse_path(prefix, GNMIPath(path).path)
    return pattern.name, {"/".join(leaf) for leaf in pattern.leaves}


def test_parse_path__one_leaf_of_one_interface():
    assert selected_leaves("interfaces/interface[name=eth1]/state/oper-status") == ("eth1", {"state/oper-status"})


@pytest.mark.parametrize("key", ["[name=*]", ""])
def test_parse_path__star_and_missing_key_select_all(key):
    assert selected_leaves(f"interfaces/interface{key}/state/ifindex") == (None, {"state/ifindex"})


@pytest.mark.parametrize("path", ["interfaces", "interfaces/interface", "*/*"])
def test_parse_path__a_short_path_is_a_subtree(path):
    assert selected_leaves(path)[1] == {"/".join(leaf) for leaf in LEAVES}


def test_parse_path__counters_container_and_star_below_it():
    want = {"/".join(leaf) for leaf in COUNTER_LEAVES} | {"state/counters/carrier-transitions"}
    assert selected_leaves("interfaces/interface[name=a]/state/counters")[1] == want
    assert selected_leaves("interfaces/interface[name=a]/state/counters/*")[1] == want


def test_parse_path__prefix_goes_in_front():
    prefix = GNMIPath("interfaces/interface[name=eth1]").path
    assert selected_leaves("state/mtu", prefix) == ("eth1", {"state/mtu"})


@pytest.mark.parametrize(
    "path",
    [
        "components/component",
        "interfaces/port",
        "interfaces/interface[name=a]/config",
        "interfaces/interface[name=a]/state/oper-status/x",
        "interfaces/interface[id=1]",
        "interfaces/interface[name=a]/state/counters/in-frames",
    ],
)
def test_parse_path__unknown_paths_list_the_known(path):
    with pytest.raises(GnmiError, match=r"oper-status.*in-pkts") as caught:
        selected_leaves(path)
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("origin", "path"),
    [
        ("", "openconfig-interfaces:interfaces/interface[name=e0]/state/oper-status"),
        ("openconfig-interfaces", "interfaces/interface[name=e0]/state/oper-status"),
        ("", "/interfaces/openconfig-interfaces:interface[name=e0]/openconfig-interfaces:state/oper-status"),
    ],
)
def test_parse_path__names_of_modules(origin, path):
    sent = GNMIPath(path).path
    sent.origin = origin
    assert parse_path(NO_PREFIX, sent) == PathPattern("e0", frozenset({("state", "oper-status")}))


@pytest.mark.parametrize(
    ("origin", "path"),
    [
        ("openconfig-qos", "interfaces"),
        ("", "openconfig-qos:interfaces"),
        ("", "openconfig-interfaces:qos"),
        ("", "interfaces/openconfig-if-ip:interface"),
        ("openconfig-interfaces", ""),
    ],
)
def test_parse_path__modules_that_are_not_there(origin, path):
    sent = GNMIPath(path).path if path else gnmi.Path()
    sent.origin = origin
    with pytest.raises(GnmiError, match=r"openconfig-interfaces|openconfig-qos"):
        parse_path(NO_PREFIX, sent, ALL_LEAVES)


def test_parse_path__foreign_origin_and_old_element_form():
    with pytest.raises(GnmiError, match="openconfig"):
        parse_path(NO_PREFIX, gnmi.Path(origin="cli"))
    with pytest.raises(GnmiError, match="elem"):
        parse_path(NO_PREFIX, gnmi.Path(element=["interfaces"]))


def test_typed_value__encodings():
    assert typed_value("UP", gnmi.PROTO).string_val == "UP"
    assert typed_value(3, gnmi.PROTO).uint_val == 3
    assert typed_value("UP", gnmi.JSON).string_val == "UP"  # the default of clients that set no encoding
    assert typed_value(3, gnmi.JSON_IETF, is_wide(("state", "counters", "in-pkts"))).json_ietf_val == b'"3"'
    assert typed_value(3, gnmi.JSON_IETF, is_wide(("state", "mtu"))).json_ietf_val == b"3"
    with pytest.raises(GnmiError, match="BYTES is not supported"):
        check_encoding(gnmi.BYTES)
