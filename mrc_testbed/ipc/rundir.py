"""Run folder: its layout and lock, the record of what a run has made, and the removal of exactly that.

See docs/architecture.md.

`RunFiles` names the files for every process; a `RunDir` holds the folder, which is the front process's.

Two marks make clean-up exact. Both are random, drawn for one run and in `state.json` before anything is made:

* every process of the run carries `MRC_FABRIC=<token>` in its environment, children of children included; the memory
  that `data/` is in is mounted under the name `mrc-<token>`;
* every interface of the run is created in the interface group `group` (`ip link show group N`).

So whatever ended the front process (`kill -9` too), the next start ends those processes, deletes those interfaces and
frees that memory, and nothing else. The files we put there are removed by name; `log/` stays to be read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc_testbed.files import memory
from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.framing import SOCKET_PATH_MAX
from mrc_testbed.switch.system import ownership
from mrc_testbed.switch.system.unix_socket import UNHEARD

DEFAULT_PATH = "/run/mrc-testbed"
TOKEN_VARIABLE = "MRC_FABRIC"
IN_MEMORY_VARIABLE = "MRC_DATA_IN_MEMORY"
"""`0`: files that hosts receive stay on the disk of the run folder."""
GUESTS_SUFFIX = "-guests"
"""Suffix of the folder beside the first fabric's run folder with what guests may open.

The run folders themselves stay closed to them.
"""
FABRICS_FOLDER = "fabrics"
"""Folder in the first fabric's run folder, for the run folders of those with names (ipc/fabrics.py)."""
FIRST_NAME = "mrc"
"""Name of the fabric in the run folder itself (ipc/fabrics.py)."""
LONGEST_HOST = "h65535"
"""Host name as long as any."""
SWITCHD = "switchd"
"""Name of the process that has all embedded switches."""
_SOCKETS = (
    "switchd.sock",
    "wires.sock",
    "mapper.sock",
    "p4runtime.sock",
    "gnmi.sock",
    "controller.sock",
    "prompt.sock",
)
_TOKEN_FILE = "token"
_CONTROLLER_FILES = ("controller.json", "faults.jsonl")
"""Address and fault journal of the controller (controller/)."""
_JSON_FILES = ("plan.json", "switches.json", "discipline.json", "devices.json", "state.json", "hosts.json")
_DASH_FILE = "dash.json"
_NAMES_FILE = "etc-hosts"
_FOLDERS = ("agents", "nics", "program", "data", "tls")
_MACHINES = "machines"
_SYS_NET = Path("/sys/class/net")


class FabricError(Exception):
    """The fabric refuses a request; the message names cause and cure."""


class HostOffError(FabricError):
    """Use of a host without power."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is off. Cure: `power {host} on`")


class RunDirError(FabricError):
    """The run folder is held by another fabric, cannot be used, or what it recorded cannot be removed."""


def default_run_dir() -> Path:
    """Return `MRC_RUN_DIR`, or /run/mrc-testbed, or where a rootless fabric of this user is.

    Raises RunDirError for a folder that another user could have prepared.
    """
    if path := os.environ.get("MRC_RUN_DIR"):
        return checked(Path(path))
    if os.geteuid() != 0 and checked(user_run_dir()).is_dir():
        files = RunFiles(user_run_dir())
        if files.has_run or (files.path / FABRICS_FOLDER).is_dir():
            return files.path
    return checked(Path(DEFAULT_PATH))


def user_run_dir() -> Path:
    """Return the run folder of this user's rootless fabrics, which may not write below /run."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime, "mrc-testbed")
    return Path(f"/tmp/mrc-testbed-{os.geteuid()}")


def checked(path: Path, owners: tuple[int, ...] = ()) -> Path:
    """Return a run folder, present or absent, as an absolute path; `owners` as in system/ownership.py.

    Raises RunDirError where another user could change what is in it: what it names is killed, removed and asked.
    """
    path = path.absolute()
    try:
        reason = ownership.refusal(path, owners)
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError as error:
        raise RunDirError(f"cannot look at the run folder {path}: {error.strerror}: set MRC_RUN_DIR") from error
    if reason is not None:
        raise RunDirError(f"the run folder is not safe: {reason}, or set MRC_RUN_DIR to a folder of your own")
    return path


@dataclass
class RunState:
    """Content of `state.json`: all that a run has made or is about to make."""

    token: str = field(default_factory=lambda: secrets.token_hex(16))
    group: int = field(default_factory=lambda: 0x4000_0000 + secrets.randbits(29))
    """Interface group of the run: a random number above 2**30, beyond groups numbered by hand."""
    front_pid: int = field(default_factory=os.getpid)
    front_start: int | None = field(default_factory=lambda: procfs.start_time(os.getpid()))
    """Start of the front process, clock ticks since boot: its number may be another's by now."""
    command: str = field(default_factory=lambda: procfs.command(os.getpid()))
    interfaces: list[str] = field(default_factory=list)
    """Interfaces of the root namespace, written before they are created."""
    processes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name -> {pid, start: clock ticks since boot, command}."""
    ports: dict[str, int] = field(default_factory=dict)
    """Purpose -> TCP port on loopback, the first where there are several."""
    began_at: float = field(default_factory=time.time)
    """Begin of the run, wall clock, seconds."""
    is_whole: bool = False
    """Whether every part has answered."""
    hosts_off: list[str] = field(default_factory=list)
    """Hosts without power."""
    guests: list[int] = field(default_factory=list)
    """Users by number who may run programs on the hosts' RDMA devices (`mrc up --allow`)."""

    @property
    def variable(self) -> str:
        return f"{TOKEN_VARIABLE}={self.token}"

    @property
    def memory(self) -> str:
        """Name of the memory that `data/` is in, if it is."""
        return f"mrc-{self.token}"


class RunFiles:
    """Layout of a run folder (`path` None: the default one). Neither reads nor holds anything by itself."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = Path(path) if path else default_run_dir()

    @property
    def name(self) -> str:
        """Name of the fabric."""
        return self.path.name if self.path.parent.name == FABRICS_FOLDER else FIRST_NAME

    @property
    def base(self) -> Path:
        """Run folder of the first fabric, which has those of all others of its user."""
        return self.path.parent.parent if self.path.parent.name == FABRICS_FOLDER else self.path

    # ---- JSON files -------------------------------------------------------------------------------------

    @property
    def plan_file(self) -> Path:
        """The fabric: Plan.to_json() of mrc_testbed.topologies.plan."""
        return self.path / "plan.json"

    @property
    def switches_file(self) -> Path:
        """Switch -> {address, device_id, gnmi} of its P4Runtime and gNMI servers."""
        return self.path / "switches.json"

    @property
    def discipline_file(self) -> Path:
        """Settings of the egress discipline, when they are not the default."""
        return self.path / "discipline.json"

    @property
    def hosts_file(self) -> Path:
        """Host -> pid of a process in its network namespace."""
        return self.path / "hosts.json"

    @property
    def names_file(self) -> Path:
        """The /etc/hosts that processes of the hosts see."""
        return self.path / _NAMES_FILE

    @property
    def devices_file(self) -> Path:
        """BMv2 only: names and ports for mrc_testbed.switch.server.portstate."""
        return self.path / "devices.json"

    @property
    def state_file(self) -> Path:
        """Record of the run's processes and interfaces: RunState."""
        return self.path / "state.json"

    def pid_of(self, process: str) -> int:
        """Pid of a process of the run; 0 where there is none, or it is not known."""
        try:
            return int(read_json(self.state_file)["processes"][process]["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    @property
    def hosts_off(self) -> list[str]:
        """Hosts of the run without power; none where that is not known."""
        try:
            return [str(name) for name in read_json(self.state_file)["hosts_off"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    @property
    def guest_users(self) -> list[int]:
        """Users of the run's `--allow` by number; none where that is not known."""
        try:
            return [int(user) for user in read_json(self.state_file)["guests"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def check_host_on(self, host: str) -> None:
        """Raises HostOffError for a host without power."""
        if host in self.hosts_off:
            raise HostOffError(host)

    @property
    def has_run(self) -> bool:
        """Whether a run is recorded here, as far as this user may look."""
        return os.access(self.state_file, os.F_OK)

    @property
    def controller_file(self) -> Path:
        """Address by TCP of the controller's northbound API: {url, pid}."""
        return self.path / "controller.json"

    @property
    def dash_file(self) -> Path:
        """Address of the live view, with its key: {url, pid}. For its owner alone."""
        return self.path / _DASH_FILE

    @property
    def fault_journal(self) -> Path:
        """Faults of the controller, JSON lines."""
        return self.path / "faults.jsonl"

    def read_plan(self) -> Any:
        """The JSON of the plan. Raises OSError, ValueError."""
        return read_json(self.plan_file)

    def read_switches(self) -> Any:
        """The JSON of the switches' addresses. Raises OSError, ValueError."""
        return read_json(self.switches_file)

    @property
    def token_file(self) -> Path:
        """The token that servers of the run want of clients by TCP. For its owner alone."""
        return self.path / _TOKEN_FILE

    def read_token(self) -> str:
        """Return the token of the run, made when there is none yet. Raises OSError."""
        try:
            with open(self.token_file, encoding="ascii", opener=_no_link) as file:
                return file.read().strip()
        except FileNotFoundError:
            write_private(self.token_file, secrets.token_hex(32) + "\n")
            return self.read_token()

    # ---- sockets and folders ------------------------------------------------------------------------------

    @property
    def switchd_socket(self) -> Path:
        return self.path / "switchd.sock"

    @property
    def shared_wires_socket(self) -> Path:
        """Embedded switches: hosts' processes ask there for memory shared with a port (docs/design/wires.md)."""
        return self.path / "wires.sock"

    @property
    def p4runtime_socket(self) -> Path:
        """P4Runtime and gNMI of the embedded switches, by gRPC (docs/security.md)."""
        return self.path / "p4runtime.sock"

    @property
    def gnmi_socket(self) -> Path:
        return self.path / "gnmi.sock"

    @property
    def controller_socket(self) -> Path:
        """The controller's northbound API, HTTP (docs/northbound.md)."""
        return self.path / "controller.sock"

    @property
    def certificate(self) -> Path:
        """Certificate that the run made for itself, when TLS is wanted."""
        return self.path / "tls" / "cert.pem"

    @property
    def certificate_key(self) -> Path:
        return self.path / "tls" / "key.pem"

    @property
    def prompt_socket(self) -> Path:
        """Words of the prompt for other shells, done by the front process (cli/prompt/word_server.py)."""
        return self.path / "prompt.sock"

    @property
    def mapper_socket(self) -> Path:
        return self.path / "mapper.sock"

    @property
    def agents(self) -> Path:
        """Folder of the agents' sockets."""
        return self.path / "agents"

    def agent_socket(self, host: str) -> Path:
        return self.agents / f"{host}.sock"

    def nic_socket(self, host: str) -> Path:
        """Socket of a host's NIC process, for programs that loaded libmrc."""
        return self.path / "nics" / f"{host}.sock"

    @property
    def guests(self) -> GuestFiles:
        """Sockets of the fabric for guests, where it has any."""
        return GuestFiles(guests_folder(self.base) / self.name)

    @property
    def program(self) -> Path:
        """Folder of p4info.txtpb and the target's device config."""
        return self.path / "program"

    @property
    def data(self) -> Path:
        """Folder of the files that hosts received; removed when the fabric ends."""
        return self.path / "data"

    @property
    def machines(self) -> list[str]:
        """Machines that hold the fabric together; none when this one holds all."""
        folder = self.path / _MACHINES
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def machine_folder(self, name: str) -> Path:
        """Folder of the sockets of another machine of the fabric (topologies/lab/cluster/)."""
        return self.path / _MACHINES / name

    @property
    def logs(self) -> Path:
        return self.path / "log"

    def log(self, name: str) -> Path:
        """Log of the process `name`: stdout and stderr."""
        return self.logs / f"{name}.log"


class GuestFiles:
    """Sockets of one fabric that guests may open (`mrc up --allow`, docs/security.md).

    They lie in a folder that only the fabric's owner can change, and each asks the kernel who connects.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def door(self) -> Path:
        """Socket of the front process: which hosts there are, and the start of their NIC processes."""
        return self.path / "door.sock"

    def nic_socket(self, host: str) -> Path:
        """Socket of a host's NIC process, for programs of guests."""
        return self.path / f"{host}.sock"

    def make(self) -> None:
        """Make the folder, which others may enter and nobody else may change. Raises RunDirError."""
        check_socket_length(self.path, self.nic_socket(LONGEST_HOST))
        for folder in (self.path.parent, self.path):
            try:
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(mode=0o700)
                checked(folder, owners=(os.geteuid(),))
                folder.chmod(0o755)
            except OSError as error:
                raise RunDirError(f"cannot make {folder} for guests: {error.strerror}: set MRC_RUN_DIR") from error
        for parent in self.path.parents:
            if not parent.stat().st_mode & stat.S_IXOTH:
                raise RunDirError(
                    f"guests cannot reach {self.path}, for {parent} is closed to other users. Cure: "
                    f"`chmod o+x {parent}`, or set MRC_RUN_DIR"
                )

    def remove(self) -> None:
        """Remove the folder if it is there and ours. A folder that another user prepared stays as it is."""
        try:
            if ownership.refusal(self.path, (os.geteuid(),)) is not None:
                return
        except (FileNotFoundError, NotADirectoryError):
            return
        _remove_tree(self.path)
        with contextlib.suppress(OSError):  # fabrics with guests remain
            self.path.parent.rmdir()


def guests_folder(base: Path) -> Path:
    """Return the folder of all fabrics' sockets for guests, present or absent.

    `base`: the first fabric's run folder.
    """
    return base.with_name(base.name + GUESTS_SUFFIX)


def check_socket_length(folder: Path, longest_path: Path) -> None:
    """Raises RunDirError for a folder whose name is too long for the sockets in it."""
    if (excess := len(os.fsencode(longest_path)) - SOCKET_PATH_MAX) > 0:
        raise RunDirError(
            f"the name of the run folder {folder} is {excess} bytes too long for a Unix socket ({longest_path}): "
            "set MRC_RUN_DIR to a shorter one"
        )


def read_json(path: Path) -> Any:
    """Return the value in a JSON file, which is no symbolic link. Raises OSError, ValueError."""
    with open(path, encoding="utf-8", opener=_no_link) as file:
        return json.load(file)


def write_private(file: Path, text: str) -> None:
    """Write a file for its owner alone, whole or not at all, and over no other file. Raises OSError."""
    new_file = file.with_name(f"{file.name}.new")
    new_file.unlink(missing_ok=True)
    try:
        with open(new_file, "x", encoding="utf-8", opener=_private) as out:
            out.write(text)
        new_file.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            new_file.unlink(missing_ok=True)
        error.filename = str(file)  # a write names no file
        raise


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


class RunDir(RunFiles):
    """One run folder that is held. As a context manager it holds the lock.

    with RunDir() as run_dir:               # RunDirError when another fabric holds it
        removed = run_dir.clean_leftovers()  # of a run that was killed
        run_dir.begin()                     # an empty folder and a new RunState
    """

    def __init__(self, path: Path | str | None = None) -> None:
        super().__init__(Path(path).absolute() if path else None)
        self.state = RunState()
        self._lock: int | None = None

    # ---- life -------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Take the lock.

        Raises RunDirError naming pid and command of the lock's holder, or the fault of the folder.
        """
        check_socket_length(self.path, self.agent_socket(LONGEST_HOST))
        try:
            self._make_private()
            self._check_is_ours()
            self._take_lock()
        except OSError as error:
            raise RunDirError(
                f"cannot use the run folder {self.path}: {error.strerror}: run as root, or set MRC_RUN_DIR"
            ) from error

    def __enter__(self) -> RunDir:
        self.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def begin(self, token: str | None = None) -> None:
        """Start a run: an empty folder, and a new state on disk before anything is made.

        `token`: for clients by TCP, that of a fabric on several machines; None: a new one.
        """
        _remove_tree(self.path / "log")
        for name in (*_FOLDERS, "log"):
            (self.path / name).mkdir()
        self.state = RunState()
        self.save()
        write_private(self.token_file, (token or secrets.token_hex(32)) + "\n")

    def let_in(self, guests: list[int]) -> None:
        """Let users, by number, run programs on the hosts' RDMA devices. Raises RunDirError."""
        self.state.guests = guests
        self.save()
        self.guests.make()

    def keep_data_in_memory(self) -> bool:
        """Give `data/` memory with huge pages, at most half of the free memory; False where it stays on disk.

        The mount carries the run's token, which is in `state.json`: remove_run() frees the memory.
        """
        if os.environ.get(IN_MEMORY_VARIABLE) == "0":
            return False
        try:
            memory.mount_folder(self.data, self.state.memory, memory.free_memory() // 2)
        except OSError:  # `mrc doctor` says why
            return False
        return True

    def release(self) -> None:
        """Let the folder go. Idempotent; what was made must be gone before."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def save(self) -> None:
        """Write state.json at once: a reader sees the old text or the new one, never half."""
        self.write_json(self.state_file, vars(self.state))

    def save_as_up(self) -> None:
        """Write that all of the fabric is up: `mrc ls` shows it no more as starting."""
        self.state.is_whole = True
        self.save()

    def write_json(self, file: Path, value: Any) -> None:
        """Write a JSON file of the folder atomically."""
        write_private(file, json.dumps(value, indent=1) + "\n")

    def clean_leftovers(self) -> list[str]:
        """End and remove what the recorded run made and still exists; needs the lock. Returns what it was.

        Raises RunDirError when something will not go.
        """
        assert self._lock is not None, "acquire() first: another process may be using this folder"
        old_state = self._read_state()
        descriptions = remove_run(old_state) if old_state else []
        for name in self.machines:
            part = RunDir(self.machine_folder(name))
            if part.state_file.exists():  # the part of a fabric on several machines that was on this one
                with part:
                    descriptions += part.clean_leftovers()
        self.remove_files()
        return descriptions

    def remove_files(self) -> None:
        """Remove what a run put here, by name; `log/` and the lock stay."""
        for name in (*_FOLDERS, _MACHINES):
            _remove_tree(self.path / name)
        self.guests.remove()
        file_names = (*_JSON_FILES, *_CONTROLLER_FILES, _DASH_FILE, _TOKEN_FILE, _NAMES_FILE)
        for name in (
            *_SOCKETS,
            *(f"{name}{UNHEARD}" for name in _SOCKETS),
            *file_names,
            *(f"{name}.new" for name in file_names),
        ):
            (self.path / name).unlink(missing_ok=True)

    # ---- inside -----------------------------------------------------------------------------------------

    def _make_private(self) -> None:
        """Make the folder, or see that it is this user's alone, mode 0700. Raises RunDirError, OSError."""
        for folder in (*reversed(self.path.parents), self.path):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        status = self.path.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not any(self.path.iterdir()):
            self.path.chmod(0o700)  # an empty folder made for us with a generous umask
        checked(self.path, owners=(os.geteuid(),))
        self.path.chmod(0o700)

    def _check_is_ours(self) -> None:
        names = {entry.name for entry in self.path.iterdir()} - {FABRICS_FOLDER}
        if names and "lock" not in names:
            raise RunDirError(
                f"{self.path} is not empty and no run folder of ours (no `lock` in it), and a run removes files: "
                "set MRC_RUN_DIR to a new or empty folder"
            )

    def _take_lock(self) -> None:
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 4096).decode(errors="replace").strip() or "a process that is just starting"
            os.close(lock)
            raise RunDirError(
                f"a fabric is running already in {self.path}: {holder}: end it first, or set MRC_RUN_DIR to "
                "another folder"
            ) from None
        except BaseException:
            os.close(lock)
            raise
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"pid {os.getpid()} ({procfs.command(os.getpid())})\n".encode(), 0)
        self._lock = lock

    def _read_state(self) -> RunState | None:
        try:
            data = read_json(self.state_file)
            return RunState(**data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise RunDirError(
                f"{self.state_file} cannot be read ({error}), so what an earlier run left is unknown: "
                "look for it (`ip link`, `ps`, `mount`), then remove that file"
            ) from error


def remove_run(state: RunState) -> list[str]:
    """End every process, delete every interface and free the memory of a run; returns what they were.

    Raises RunDirError.
    """
    descriptions = [*kill_run(state), *delete_group(state.group)]
    try:
        return [*descriptions, *(f"files in memory at {folder}" for folder in memory.unmount_folders(state.memory))]
    except OSError as error:
        raise RunDirError(
            f"cannot free what hosts received, in memory at {error.filename}: {error.strerror}"
        ) from error


def kill_run(state: RunState, wait_s: float = procfs.KILLED_S) -> list[str]:
    """SIGKILL the processes of a run until none is left; return `pid 7 (command)` of each.

    A process belongs to the run by the run's token or by the record.

    Raises RunDirError when none of those left ends in `wait_s` seconds.
    """
    start_times = {entry["pid"]: entry["start"] for entry in state.processes.values()}
    own_pids = procfs.lineage()

    def is_ours(pid: int) -> bool:
        start_time = procfs.start_time(pid)
        if start_time is None or pid in own_pids:
            return False
        return start_times.get(pid) == start_time or procfs.has_environment(pid, state.variable)

    try:
        return procfs.kill_all(is_ours, wait_s)
    except TimeoutError as error:
        raise RunDirError(f"cannot remove what a run made: {error}") from error


def interfaces_of_group(group: int) -> list[str]:
    """Interfaces of the root namespace in an interface group."""
    out = []
    for entry in _SYS_NET.iterdir():
        try:
            if int((entry / "netdev_group").read_text()) == group:
                out.append(entry.name)
        except OSError:  # it went while we looked, or is no interface (`bonding_masters`)
            continue
    return sorted(out)


def delete_group(group: int) -> list[str]:
    """Delete all interfaces of a group in one stroke (16 pairs in 30 ms; one by one they take 400)."""
    names = interfaces_of_group(group)
    if names:
        run = subprocess.run(["ip", "link", "del", "group", str(group)], capture_output=True, text=True)
        remaining = interfaces_of_group(group)
        if remaining:
            raise RunDirError(f"cannot delete interfaces {', '.join(remaining)}: {run.stderr.strip()}")
    return names


def _remove_tree(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
