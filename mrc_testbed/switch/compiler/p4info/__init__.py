"""P4Info of a program, as p4c writes it."""
