"""`python -m hosts.agent`: the process in each host."""

import sys

from hosts.agent.agent import main

if __name__ == "__main__":
    sys.exit(main())
