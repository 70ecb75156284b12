"""Numbers with units, tables, progress, and the frame of every command: what people type and read."""
