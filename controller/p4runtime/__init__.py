"""Switches over P4Runtime: session, entries, routes, and the provisioner of a switch."""
