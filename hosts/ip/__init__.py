"""IP over the fabric: ordinary programs of a host (ping, iperf3) use the planes beside MRC."""
