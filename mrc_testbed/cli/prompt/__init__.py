"""The Mininet prompt: the shell and its commands."""
