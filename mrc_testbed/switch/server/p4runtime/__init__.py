"""P4Runtime server: arbitration, pipeline, Write, Read, digests, packet I/O."""
