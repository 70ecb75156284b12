"""Traffic generators: no clock, no socket; an agent or the simulator drives them.

    message_stream.py    FlowSender, FlowSink: messages of one size, posted at a rate or back to back
    write_benchmark.py   WriteLoad: RDMA writes with the statistics of perftest
    file_transfer.py     Sender, Transfer: a file into the peer's memory
    collectives.py       make(), Rank: collective operations as state machines
    collective_rank.py   RankDriver: one rank of a collective over queue pairs
    statistics.py        latency_summary(), percentile(), PeakMeter

Names are imported from their module: a package import here would load numpy into every agent.
"""
