"""`python -m mrc`: the `mrc` command."""

from mrc.cli.app import main

if __name__ == "__main__":
    main()
