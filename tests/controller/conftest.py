"""What the controller's tests share: the two programs as P4Info, written by hand from p4src (ids are ours)."""

import pytest
from finsy import P4Schema
from finsy.proto import p4i
from google.protobuf import text_format

from controller.entries import Catalog

SRV6_P4INFO = """
pkg_info { arch: "v1model" }
tables {
  preamble { id: 33554433 name: "SwitchIngress.transit.my_usid" alias: "my_usid" }
  match_fields { id: 1 name: "locator_usid" bitwidth: 48 match_type: EXACT }
  action_refs { id: 16777217 } action_refs { id: 16777218 scope: DEFAULT_ONLY }
  const_default_action_id: 16777218 size: 16
}
tables {
  preamble { id: 33554434 name: "SwitchIngress.transit.usid_next" alias: "usid_next" }
  match_fields { id: 1 name: "locator_usid" bitwidth: 48 match_type: EXACT }
  action_refs { id: 16777219 } action_refs { id: 16777220 scope: DEFAULT_ONLY }
  const_default_action_id: 16777220 size: 1024
}
actions { preamble { id: 16777217 name: "SwitchIngress.transit.shift" alias: "shift" } }
actions { preamble { id: 16777218 name: "SwitchIngress.transit.wrong_usid" alias: "wrong_usid" } }
actions {
  preamble { id: 16777219 name: "SwitchIngress.transit.forward" alias: "forward" }
  params { id: 1 name: "port" bitwidth: 9 }
}
actions { preamble { id: 16777220 name: "SwitchIngress.transit.unknown_usid" alias: "unknown_usid" } }
"""

SPRAY_P4INFO = """
pkg_info { arch: "v1model" }
tables {
  preamble { id: 33554433 name: "SwitchIngress.routing.route" alias: "route" }
  match_fields { id: 1 name: "dst_addr" bitwidth: 128 match_type: LPM }
  action_refs { id: 16777217 } action_refs { id: 16777218 } action_refs { id: 16777219 scope: DEFAULT_ONLY }
  const_default_action_id: 16777219 size: 4096
}
tables {
  preamble { id: 33554434 name: "SwitchIngress.choice.hash_seed" alias: "hash_seed" }
  action_refs { id: 16777220 }
  size: 1
}
tables {
  preamble { id: 33554435 name: "SwitchIngress.choice.uplinks" alias: "uplinks" }
  match_fields { id: 1 name: "uplink_group" bitwidth: 16 match_type: EXACT }
  action_refs { id: 16777221 } action_refs { id: 16777222 scope: DEFAULT_ONLY }
  const_default_action_id: 16777222 implementation_id: 285212673 size: 256
}
actions {
  preamble { id: 16777217 name: "SwitchIngress.routing.forward" alias: "forward" }
  params { id: 1 name: "port" bitwidth: 9 }
}
actions {
  preamble { id: 16777218 name: "SwitchIngress.routing.spray" alias: "spray" }
  params { id: 1 name: "uplink_group" bitwidth: 16 }
}
actions { preamble { id: 16777219 name: "SwitchIngress.routing.no_route" alias: "no_route" } }
actions {
  preamble { id: 16777220 name: "SwitchIngress.choice.set_hash_seed" alias: "set_hash_seed" }
  params { id: 1 name: "seed" bitwidth: 32 }
}
actions {
  preamble { id: 16777221 name: "SwitchIngress.choice.use_uplink" alias: "use_uplink" }
  params { id: 1 name: "port" bitwidth: 9 }
}
actions { preamble { id: 16777222 name: "SwitchIngress.choice.no_uplink" alias: "no_uplink" } }
action_profiles {
  preamble { id: 285212673 name: "SwitchIngress.choice.uplink_selector" alias: "uplink_selector" }
  table_ids: 33554435 with_selector: true size: 1024 max_group_size: 1024
}
"""


def catalog_of(text: str) -> Catalog:
    return Catalog(P4Schema(text_format.Parse(text, p4i.P4Info()), b"config"))


@pytest.fixture(scope="session")
def srv6() -> Catalog:
    return catalog_of(SRV6_P4INFO)


@pytest.fixture(scope="session")
def spray() -> Catalog:
    return catalog_of(SPRAY_P4INFO)
