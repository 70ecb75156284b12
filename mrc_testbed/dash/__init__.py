"""Live view of a running fabric: a page on loopback that draws it, shows events, breaks and heals it."""
