"""Benchmarks behind `mrc bench`; each file prints figures of one subject.

switch, traffic, target    the embedded switch: CPU per packet, queues and timers, start-up and memory
mrc, endpoint, engine, af_packet    CPU per MRC packet: across a fabric, without one, the engine alone, bare sockets
virtual    CPU per packet and event of the virtual fabric, compiled, interpreted, and a bare event loop in C
spray, incast, transport    loss after a cut, incast, recovery beside their targets
provision    time until all switches are provisioned
"""
