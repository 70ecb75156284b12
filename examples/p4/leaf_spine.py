"""Two leaves and four spines in memory, for the exercise of the sprayer.

h1 - s1 = s3, s4, s5, s6 = s2 - h2        ports of a leaf: 1 the host, 2 to 5 the spines; of a spine: 1 s1, 2 s2
"""

from collections import Counter

from scapy.all import IP, UDP, Ether, Raw

LEAVES = {"s1": "10.0.1.1", "s2": "10.0.2.2"}
SPINES = ("s3", "s4", "s5", "s6")
LINKS = {("s1", 2 + n): (spine, 1) for n, spine in enumerate(SPINES)}
LINKS |= {("s2", 2 + n): (spine, 2) for n, spine in enumerate(SPINES)}
LINKS |= {peer: end for end, peer in LINKS.items()}
ROUNDS_MAX = 16
"""Hops after which a packet counts as lost."""


def packet(number: int = 0, sport: int = 1000) -> Ether:
    """Return a packet from h1 to h2; its number is in the payload."""
    payload = Raw(number.to_bytes(4, "big") + bytes(60))
    return (
        Ether(dst="08:00:00:00:02:22", src="08:00:00:00:01:11")
        / IP(src=LEAVES["s1"], dst=LEAVES["s2"])
        / UDP(sport=sport, dport=2000)
        / payload
    )


def set_entries(switch, routes: dict, ports: range, uplinks: int = 0) -> None:
    """Give a switch its routes, its uplinks by number, and a watch on each port."""
    switch.script("member port_watch 1 send()")
    for port in ports:
        switch.script(f"group port_watch {port} 1@{port}\nadd live_ports meta.out_port:{port} group(id:{port})")
    for prefix, (action, value) in routes.items():
        switch.add("route", {"dst": prefix}, action, **{"port" if action == "to_port" else "count": value})
    for number in range(uplinks):
        switch.add("uplink_port", {"uplink": number}, "to_port", port=2 + number)
        switch.add("uplink_of", {"ingress_port": 2 + number}, "is_uplink", uplink=number)


class LeafSpine:
    """The six switches, each with the same program."""

    def __init__(self, make_switch, program: str) -> None:
        self.switches = {name: make_switch(program) for name in (*LEAVES, *SPINES)}
        self.loads: Counter = Counter()
        """Packets that each port of a leaf sent to a spine."""
        self.dead_ports: set = set()
        first, second = (f"{address}/32" for address in LEAVES.values())
        set_entries(self.switches["s1"], {first: ("to_port", 1), second: ("to_uplinks", 4)}, range(1, 6), 4)
        set_entries(self.switches["s2"], {second: ("to_port", 1), first: ("to_uplinks", 4)}, range(1, 6), 4)
        for spine in SPINES:
            set_entries(self.switches[spine], {first: ("to_port", 1), second: ("to_port", 2)}, range(1, 3))

    def cut(self, name: str, port: int) -> None:
        """Cut a link: both ends lose carrier."""
        for end_name, end_port in ((name, port), LINKS[name, port]):
            self.dead_ports.add((end_name, end_port))
            self.switches[end_name].script(f"port {end_port} down")

    def deliver(self, frame) -> bool:
        """Send a packet from h1 through the switches; return whether h2 got it."""
        waiting = [("s1", 1, frame, 0)]
        while waiting:
            name, port, data, hops = waiting.pop()
            for out_port, out_frame in self.switches[name].send(port, data):
                if (name, out_port) == ("s2", 1):
                    return True
                peer = LINKS.get((name, out_port))
                if peer is None or (name, out_port) in self.dead_ports or hops > ROUNDS_MAX:
                    continue
                if name == "s1":
                    self.loads[out_port] += 1
                waiting.append((*peer, out_frame, hops + 1))
        return False

    def transfer(self, count: int, flows: int = 1) -> int:
        """Send packets of some flows; return the number that arrived."""
        return sum(self.deliver(packet(number, 1000 + 37 * (number % flows))) for number in range(count))
