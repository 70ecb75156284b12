"""The system under the switch, for everybody: the cache and whose it is, gcc, rtnetlink. Imports nothing of ours."""
