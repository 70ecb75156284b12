"""Machines that hold a live fabric together: their file and the placement of nodes.

See docs/cluster.md.
"""

from mrc_testbed.topologies.servers.file import LOCAL, Machine, Servers, ServersError, read
from mrc_testbed.topologies.servers.placement import Crossing, Placement, place_nodes

__all__ = ["LOCAL", "Crossing", "Machine", "Placement", "Servers", "ServersError", "place_nodes", "read"]
