"""Switches over P4Runtime: session, entries, routes, and the provisioner that keeps a switch as the plan wants it."""
