"""The system under the switch, for everybody: gcc and its cache, rtnetlink, sockets. Imports nothing of ours."""
