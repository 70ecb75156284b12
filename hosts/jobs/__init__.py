"""Programs of users as ranks on hosts of a live fabric: how they enter a host, run, print and end."""
