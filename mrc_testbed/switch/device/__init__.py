"""A P4 device over the C runtime: tables, profiles, arrays, traffic manager, ports."""
