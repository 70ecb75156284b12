"""`python -m mrc_testbed.hosts.nicd --host h0 --run-dir DIR`: the NIC process of a host."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
from pathlib import Path

from mrc_testbed.hosts.agent.engine_defaults import host_config
from mrc_testbed.hosts.engine.config import ConfigError
from mrc_testbed.hosts.nic.base import NicError
from mrc_testbed.hosts.nicd.daemon import NicDaemon
from mrc_testbed.hosts.nicd.guests import first_records
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.live import LiveDriver
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.ipc.signals import SignalExit, terminating
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.topologies.plan import Plan, PlanError

LOG_RECORDS = 100_000
"""Lines of the log, which lies in memory as a rule (/run)."""


def main(argv: list[str] | None = None) -> int:
    """Serve programs until SIGTERM; return 1, with a message, when that is not possible."""
    parser = argparse.ArgumentParser(prog="mrc_testbed.hosts.nicd", description="NIC process of one host")
    parser.add_argument("--host", required=True, help="name in the plan, such as h0")
    parser.add_argument("--run-dir", required=True, type=Path, help="run folder with plan.json")
    parser.add_argument("--seed", type=int, help="seed of the engine's random choices; random when left out")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Whatever a guest's program does wrong makes a line.
    for handler in logging.getLogger().handlers:
        handler.addFilter(first_records(LOG_RECORDS))
    files = RunFiles(arguments.run_dir)
    try:
        plan = Plan.from_json(files.read_plan())
        host = plan.host(arguments.host)
        driver = LiveDriver(
            plan, host, arguments.run_dir, host_config(plan), nic="fast", thread=False, seed=arguments.seed
        )
        guests = files.guest_users
        guest_path = files.guests.nic_socket(host.name) if guests else None
        with terminating(), NicDaemon(driver, files.nic_socket(host.name), guest_path, guests) as daemon:
            gc.freeze()
            daemon.run()
    except SignalExit:
        return 0
    except (NicError, VerbsError, PlanError, ConfigError, BuildError, OSError, json.JSONDecodeError) as error:
        print(f"{arguments.host}: the NIC process cannot start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
