"""Benchmarks and campaigns behind `mrc bench` and `mrc fuzz p4`; each file prints figures of one subject.

switch, traffic, target    the embedded switch: CPU per packet, queues and timers, start-up and memory
mrc, endpoint, engine, af_packet    CPU per MRC packet: across a fabric, without one, the engine alone, bare sockets
fluid    error of the fluid model against the packet simulator
virtual    CPU per packet and event of the virtual fabric, compiled, interpreted, and a bare event loop in C
spray, incast, transport    loss after a cut, incast, recovery beside their targets
faults, virtual_faults    fault correlation on a live fabric and in virtual time
provision    time until all switches are provisioned
bmv2, p4_fuzz, p4_random    the embedded switch compared with BMv2
"""
