"""The servers in front of devices: P4Runtime, gNMI, and the control socket."""
