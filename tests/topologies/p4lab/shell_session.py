"""Session of p4runtime-shell on a running P4 lab, run by its own Python (test_lab_shell.py).

Usage: python shell_session.py ADDRESS write|read. `write` forwards between the hosts of COUNTED_MAC_SWITCH; `read`
prints the entries and counts as JSON.
"""

import json
import os
import sys
import traceback

import p4runtime_sh.shell as sh


def fail(*error):
    """End the process at once; the client's threads would keep it alive."""
    traceback.print_exception(*error)
    sys.stderr.flush()
    os._exit(1)


sys.excepthook = fail
address, step = sys.argv[1:]
sh.setup(device_id=0, grpc_addr=address, election_id=(0, 1), verbose=False)  # without a program: it asks for P4Info
if step == "write":
    for mac, port in (("08:00:00:00:01:11", "1"), ("08:00:00:00:02:22", "2")):
        entry = sh.TableEntry("macs")(action="forward")
        entry.match["hdr.ethernet.dst"] = mac
        entry.action["port"] = port
        entry.insert()
ports = [entry.action.msg().params[0].value[-1] for entry in sh.TableEntry("macs").read()]
hits = [hit.packet_count for hit in sh.DirectCounterEntry("hits").read()]
cells = [cell.packet_count for cell in sh.CounterEntry("ports").read()]
sh.teardown()
print(json.dumps({"ports": sorted(ports), "hits": hits, "cells": cells}))
