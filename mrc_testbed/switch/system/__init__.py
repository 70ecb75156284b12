"""System services under the switch, for all packages: gcc and its cache, rtnetlink, sockets.

Imports no other package of mrc_testbed.
"""
