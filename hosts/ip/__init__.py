"""IP over the fabric: ordinary programs of a host (ping, iperf3, ssh, MPI over TCP) use the planes beside MRC."""
