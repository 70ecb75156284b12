"""Traffic generators: message streams, write benchmark, file transfer, collectives. No clock, no socket."""
