"""Comments that explain the packets of a capture: `mrc pcap --explain`.

packet_facts      what a frame says of itself
explainer         what it means beside the others: path, mark, trim, retransmission, answers
queue_depths      how full the queue was that it left, of a running fabric
capture_reader    frames of a finished pcap or pcapng file
explained_file    the same file once more, as pcapng with a comment on each packet
"""
