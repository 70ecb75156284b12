"""The command line of `mrc`: mrc.cli.app has the commands, the other modules one group each."""
