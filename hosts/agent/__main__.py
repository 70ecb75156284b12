"""`python -m mrc_testbed.hosts.agent`: the process in each host."""

import sys

from mrc_testbed.hosts.agent.agent import main

if __name__ == "__main__":
    sys.exit(main())
