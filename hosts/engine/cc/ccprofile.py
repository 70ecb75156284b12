"""CC profiles: named sets of congestion control parameters, and their use by QPs (§10.3, §10.4).

A field that is None is derived from the pipe (nscc.md §1.2): so one profile suits hosts of any rate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any, Final

from mrc_testbed.hosts.engine.cc.nscc import INF, NsccParameters
from mrc_testbed.hosts.engine.errors import LocalError

NSCC: Final = "uet-1.0-nscc"
FIXED_WINDOW: Final = "fixed"
"""Ours: a window of max_cwnd bytes that never changes."""
ALGORITHMS: Final = (NSCC, FIXED_WINDOW)
"""None, NULL in the API, is allowed too: no congestion control, MPR alone bounds what is in flight."""
QA_THRESHOLD_OFF: Final = (1 << 64) - 1
"""qa_threshold at its maximum: no delay causes a quick adapt, for trims do."""
NS: Final = 1e-9


@dataclass(frozen=True, slots=True)
class CcProfile:
    """Field names and units of §10.4. Raises LocalError for a value out of range."""

    algorithm: str | None = NSCC
    base_rtt: int | None = None
    """Unloaded round trip of a full packet over the longest path, ns.

    None: the configuration's base RTT, or a measured one."""
    target_delay: int | None = None
    """ns; None = 0.75 base_rtt where switches trim, else 1.0."""
    max_cwnd: int | None = None
    """Bytes, ceiling and start of the window; None = 1.5 BDP."""
    eta: float | None = None
    """Bytes per adjust period."""
    fi: float | None = None
    """Bytes per round trip."""
    fi_scale: float | None = None
    gamma: float | None = None
    max_md_jump: float | None = None
    adjust_bytes_threshold: int | None = None
    adjust_period_threshold: int | None = None
    """ns."""
    disable_qa: bool = False
    qa_gate: int | None = None
    qa_threshold: int | None = None
    """ns; QA_THRESHOLD_OFF = no delay is enough."""

    def __post_init__(self) -> None:
        if self.algorithm is not None and self.algorithm not in ALGORITHMS:
            raise LocalError(f"no algorithm {self.algorithm!r} (has: {', '.join(ALGORITHMS)}, or None for none)")
        if not isinstance(self.disable_qa, bool):
            raise LocalError(f"disable_qa = {self.disable_qa!r}: must be true or false")
        for name, (low, high, kinds) in _RANGES.items():
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
                value_kind = "a whole number" if kinds is int else "a number"
                raise LocalError(f"{name} = {value!r}: must be {value_kind}, {low} to {high}, or None for the default")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> CcProfile:
        """Inverse of to_json; keys left out have their default. Raises LocalError naming what is wrong."""
        field_names = [f.name for f in fields(cls)]
        if not isinstance(data, dict):
            raise LocalError(f"a CC profile is a table of keys; got {data!r}")
        if unknown := sorted(map(str, set(data) - set(field_names))):
            raise LocalError(f"a CC profile has no key {', '.join(unknown)} (has: {', '.join(field_names)})")
        return cls(**data)

    def parameters(
        self,
        mtu: float,
        rate: float,
        base_rtt_s: float,
        *,
        trimming: bool,
        scaling: str = "shape",
        base_min_s: float = 0.0,
    ) -> NsccParameters:
        """Return the NSCC parameters for one pipe.

        `mtu`: nominal bytes; `rate`: bytes per second; `base_rtt_s`: unloaded round trip; `base_min_s`: least value
        that a measured round trip may have.
        """
        target = None if self.target_delay is None else self.target_delay * NS
        defaults = NsccParameters.derive(mtu, rate, base_rtt_s, trimming=trimming, scaling=scaling, target=target)
        overrides: dict[str, Any] = {
            "max_cwnd": self.max_cwnd,
            "eta": self.eta,
            "fi": self.fi,
            "fi_scale": self.fi_scale,
            "gamma": self.gamma,
            "max_md_jump": self.max_md_jump,
            "adjust_bytes": self.adjust_bytes_threshold,
            "qa_gate": self.qa_gate,
            "quick_adapt": not self.disable_qa,
            "base_min": base_min_s,
        }
        if self.adjust_period_threshold is not None:
            overrides["adjust_period"] = self.adjust_period_threshold * NS
        if self.qa_threshold is not None:
            overrides["qa_threshold"] = INF if self.qa_threshold == QA_THRESHOLD_OFF else self.qa_threshold * NS
        return replace(defaults, **{key: value for key, value in overrides.items() if value is not None})


_NS_MAX: Final = 3600 * 10**9
_RANGES: Final[dict[str, tuple[float, float, Any]]] = {
    "base_rtt": (1, _NS_MAX, int),
    "target_delay": (1, _NS_MAX, int),
    "max_cwnd": (256, 1 << 40, int),
    "eta": (0, 1e12, (int, float)),
    "fi": (0, 1e12, (int, float)),
    "fi_scale": (0, 1e3, (int, float)),
    "gamma": (0, 1, (int, float)),
    "max_md_jump": (0, 1, (int, float)),
    "adjust_bytes_threshold": (0, 1 << 40, int),
    "adjust_period_threshold": (1, _NS_MAX, int),
    "qa_gate": (0, 30, int),
    "qa_threshold": (0, QA_THRESHOLD_OFF, int),
}


class ProfileState(Enum):
    """Life of a profile (§10.3)."""

    INIT = "init"
    """Being written."""
    OFFLINE = "offline"
    """Complete; can still be changed."""
    ONLINE = "online"
    """QPs may be made with it; it cannot be changed."""


# From each state to the next ones; any other move is refused.
PROFILE_MOVES: Final[dict[ProfileState, tuple[ProfileState, ...]]] = {
    ProfileState.INIT: (ProfileState.OFFLINE,),
    ProfileState.OFFLINE: (ProfileState.ONLINE, ProfileState.INIT),
    ProfileState.ONLINE: (ProfileState.OFFLINE,),
}


class _Entry:
    __slots__ = ("name", "profile", "state", "users")

    def __init__(self, name: str, profile: CcProfile, state: ProfileState) -> None:
        self.name, self.profile, self.state = name, profile, state
        self.users = 0
        """QPs made with it and not destroyed."""


DEFAULT_PROFILE: Final = 0
"""Id of the profile that the endpoint's configuration describes: always ONLINE, never changed."""


class CcProfiles:
    """The profiles of one endpoint, by id. Every call raises LocalError for an id that does not exist."""

    def __init__(self, default: CcProfile, limit: int = 64) -> None:
        self._limit = limit
        self._entries = {DEFAULT_PROFILE: _Entry("default", default, ProfileState.ONLINE)}
        self._next_id = DEFAULT_PROFILE + 1

    def create(self, profile: CcProfile | None = None, name: str = "") -> int:
        """Create a profile in INIT and return its id.

        Raises LocalError when there are too many.
        """
        if len(self._entries) >= self._limit:
            raise LocalError(f"{self._limit} CC profiles exist, which is the limit: destroy one first")
        profile_id, self._next_id = self._next_id, self._next_id + 1
        self._entries[profile_id] = _Entry(name or f"cc{profile_id}", profile or CcProfile(), ProfileState.INIT)
        return profile_id

    def modify(self, profile_id: int, **changes: Any) -> CcProfile:
        """Change fields of a profile that is not ONLINE.

        Raises LocalError, and changes nothing, when any value is wrong.
        """
        entry = self._entry(profile_id)
        if entry.state is ProfileState.ONLINE:
            raise LocalError(f"CC profile {profile_id} is online: take it offline to change it")
        entry.profile = CcProfile.from_json({**entry.profile.to_json(), **changes})
        return entry.profile

    def move(self, profile_id: int, state: ProfileState) -> None:
        """INIT -> OFFLINE -> ONLINE -> OFFLINE -> INIT. Not away from ONLINE while a QP uses the profile."""
        entry = self._entry(profile_id)
        if state not in PROFILE_MOVES[entry.state]:
            targets = " or ".join(s.value for s in PROFILE_MOVES[entry.state])
            raise LocalError(
                f"CC profile {profile_id} is {entry.state.value}, which moves to {targets}, not to {state.value}"
            )
        if entry.state is ProfileState.ONLINE:
            self._check_unused(profile_id, entry)
        entry.state = state

    def destroy(self, profile_id: int) -> None:
        """Forget a profile that no QP uses."""
        self._check_unused(profile_id, self._entry(profile_id))
        del self._entries[profile_id]

    def get(self, profile_id: int) -> CcProfile:
        return self._entry(profile_id).profile

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per profile: `id`, `name`, `state` in words, `users` (QPs), and its fields."""
        return [
            {
                "id": number,
                "name": entry.name,
                "state": entry.state.value,
                "users": entry.users,
                **entry.profile.to_json(),
            }
            for number, entry in self._entries.items()
        ]

    def take(self, profile_id: int) -> CcProfile:
        """Count a QP that gets the profile, and return the profile.

        Raises LocalError unless the profile is ONLINE.
        """
        entry = self._entry(profile_id)
        if entry.state is not ProfileState.ONLINE:
            raise LocalError(f"CC profile {profile_id} is {entry.state.value}: bring it online before a QP uses it")
        if profile_id != DEFAULT_PROFILE:
            entry.users += 1
        return entry.profile

    def give_back(self, profile_id: int) -> None:
        """Count off a QP that had the profile.

        The default profile is not counted: it always exists.
        """
        if profile_id != DEFAULT_PROFILE:
            self._entry(profile_id).users -= 1

    def _entry(self, profile_id: int) -> _Entry:
        try:
            return self._entries[profile_id]
        except (KeyError, TypeError):
            raise LocalError(f"no CC profile {profile_id!r} (has: {', '.join(map(str, self._entries))})") from None

    @staticmethod
    def _check_unused(profile_id: int, entry: _Entry) -> None:
        if profile_id == DEFAULT_PROFILE:
            raise LocalError("CC profile 0 is the endpoint's configuration: change that instead")
        if entry.users:
            raise LocalError(f"CC profile {profile_id} is used by {entry.users} QPs: destroy them first")
