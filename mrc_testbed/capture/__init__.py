"""Packets: taken off ports, read from files, explained, and followed through the switches' own tables.

packet_files      capture files and packets off a port
pcap              `mrc pcap`
explain           `mrc explain`: what each packet of a capture says
trace             `mrc trace`: the way of one packet, by live_tables
replay            `mrc faults --replay`: the controller's diagnosis of a recorded run
"""
