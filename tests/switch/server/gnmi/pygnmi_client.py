"""A foreign gNMI client in a process of its own.

Its messages and finsy's have the same names, one process takes one.

python pygnmi_client.py ADDRESS capabilities|subscribe [SUBSCRIPTION_LIST as JSON]: prints a JSON line for each answer.
The first of a subscription is all up to sync_response.
"""

from __future__ import annotations

import json
import sys

from pygnmi.client import gNMIclient

address, request, *arguments = sys.argv[1:]
host, _, port = address.rpartition(":")
with gNMIclient(target=(host, int(port)), insecure=True) as client:
    if request == "capabilities":
        print(json.dumps(client.capabilities()), flush=True)
    else:
        stream = client.subscribe2(subscribe=json.loads(arguments[0]))
        while stream.error is None:
            try:
                print(json.dumps(stream.get_update(timeout=0.2)), flush=True)
            except TimeoutError:
                continue
        print(json.dumps({"error": stream.error.details()}), flush=True)
