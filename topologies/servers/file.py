"""The file of `--servers`: machines reached by ssh, and what is particular about each.

    servers = read(Path("servers.yaml"))     # ServersError with line and key
    servers.machines[0].name

Example::

    user: root                     # of all machines, as all keys of a machine but name, address, underlay and planes
    machines:
      - {name: a, address: 192.0.2.11}
      - {name: b, address: 192.0.2.12, planes: [2, 3], python: /opt/mrc/.venv/bin/python}
      - {name: here, address: local, underlay: 192.0.2.10}
"""

from __future__ import annotations

import ipaddress
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from mrc_testbed.errors import UsageError
from mrc_testbed.files.package import PACKAGE
from mrc_testbed.ipc.rundir import DEFAULT_PATH

LOCAL: Final = "local"
"""Address of the machine where the command is given, which needs no ssh."""
FILE_MAX: Final = 1 << 20
MACHINES_MAX: Final = 64
_LIST: Final = "a list such as `- {name: a, address: 192.0.2.11}`"
_SHARED_KEYS: Final = ("user", "port", "identity", "ssh_options", "checkout", "python", "run_dir")


class ServersError(UsageError):
    """The file of the machines cannot be used; the message names file, line and what would do."""


class Machine(BaseModel):
    """One machine. Paths are those of that machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9.-]{0,31}$")]
    address: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9.:_-]{0,253}$")]
    """Host name or address for ssh, or "local"."""
    underlay: str | None = None
    """Address that carries links to other machines; None: `address`, which then is looked up."""
    planes: list[Annotated[int, Field(ge=0)]] | None = None
    """Planes whose switches it holds; None: its share of those that no machine names."""
    user: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_][a-zA-Z0-9_.-]*$")] | None = None
    """Login name; a user other than root needs `sudo` without a password. None: as ssh has it."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    identity: str | None = None
    """File of the private key; None: as ssh has it."""
    ssh_options: list[Annotated[str, Field(pattern=r"^[A-Za-z]+=\S.*$")]] = []
    """Options as after `ssh -o`."""
    checkout: Annotated[str, Field(pattern=r"^/")] = str(PACKAGE.parent)
    """Folder of mrc-testbed, in the version of this machine."""
    python: Annotated[str, Field(pattern=r"^/")] = sys.executable
    run_dir: Annotated[str, Field(pattern=r"^/")] = DEFAULT_PATH

    @property
    def is_local(self) -> bool:
        return self.address == LOCAL

    @field_validator("underlay")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            ipaddress.ip_address(value)
        return value

    @field_validator("identity")
    @classmethod
    def _expand_path(cls, value: str | None) -> str | None:
        return None if value is None else str(Path(value).expanduser())


class Servers(BaseModel):
    """All machines, in the order of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machines: Annotated[list[Machine], Field(min_length=1, max_length=MACHINES_MAX)]
    _file: Path | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path | None:
        """File that they were read from; None: made by a program."""
        return self._file

    def machine(self, name: str) -> Machine:
        """A machine by its name. Raises ServersError."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        raise ServersError(f"no machine {name!r} (has: {', '.join(machine.name for machine in self.machines)})")


def read(path: Path) -> Servers:
    """The machines of a file. Raises ServersError."""
    tree = _tree(path)
    raw = dict(tree)
    shared_keys = {key: raw.pop(key) for key in _SHARED_KEYS if key in raw}
    machines = raw.get("machines")
    if isinstance(machines, list):
        raw["machines"] = [{**shared_keys, **machine} if isinstance(machine, dict) else machine for machine in machines]
    elif shared_keys and "machines" not in raw:
        raise ServersError(f"{path}: line 1: no `machines:`: give a list such as `- {{name: a, address: 192.0.2.11}}`")
    try:
        servers = Servers.model_validate(raw)
    except ValidationError as error:
        raise ServersError("\n".join(_text(path, tree, mistake) for mistake in error.errors())) from None
    _check(path, servers)
    servers._file = path
    return servers


def _tree(path: Path) -> CommentedMap:
    try:
        data = path.read_bytes()
        if len(data) > FILE_MAX:
            raise ServersError(f"{path}: {len(data)} bytes: a file of machines has at most {FILE_MAX}")
        tree = YAML(typ="rt").load(data.decode())
    except OSError as error:
        raise ServersError(f"{path}: {error.strerror}: give a file of machines (docs/cluster.md has one)") from None
    except UnicodeDecodeError as error:
        raise ServersError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ServersError(f"{path}: line {line}: {(error.problem or 'not YAML').splitlines()[0]}") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise ServersError(f"{path}: not YAML: {str(error).splitlines()[0] if str(error) else error!r}") from None
    if not isinstance(tree, CommentedMap):
        raise ServersError(
            f"{path}: line 1: a mapping with `machines:`, a list such as `- {{name: a, address: 192.0.2.11}}`"
        )
    return tree


def _text(path: Path, tree: CommentedMap, error: Any) -> str:
    """One mistake, with the line of the nearest part that the file has."""
    node: Any = tree
    line = 1
    for key in error["loc"]:
        try:
            line = (node.lc.data[key][0] if node.lc.data else line - 1) + 1
            node = node[key]
        except (KeyError, IndexError, TypeError, AttributeError):
            break
    key_path = ".".join(map(str, error["loc"]))
    message = error["msg"]
    if error["type"] == "extra_forbidden":
        model = Machine if len(error["loc"]) > 1 else Servers
        has = [*model.model_fields, *(() if model is Machine else _SHARED_KEYS)]
        message = f"no such key (has: {', '.join(has)})"
    return f"{path}: line {line}: {key_path}: {message[:1].lower()}{message[1:]}"


def _check(path: Path, servers: Servers) -> None:
    """Check what concerns several machines together. Raises ServersError."""
    machines = servers.machines
    for key, values in (
        ("name", [machine.name for machine in machines]),
        ("underlay", [machine.underlay for machine in machines if machine.underlay]),
        ("plane", [plane for machine in machines for plane in machine.planes or ()]),
    ):
        duplicates = [str(value) for value, count in Counter(values).items() if count > 1]
        if duplicates:
            raise ServersError(f"{path}: {key} {', '.join(duplicates)} stands twice: each belongs to one machine")
    if sum(machine.is_local for machine in machines) > 1:
        raise ServersError(
            f"{path}: more than one machine has `address: {LOCAL}`: only the machine where the command runs may"
        )
