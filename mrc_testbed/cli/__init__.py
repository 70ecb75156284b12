"""The command line of `mrc`: mrc_testbed.cli.app has the commands, the other modules one group each."""
