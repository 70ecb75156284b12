"""The bench of engine_pair.py with a RoCEv2 RC queue pair at each end."""

from __future__ import annotations

from random import Random
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.engine.rocev2.rc_packets import RcAck, RcSyndrome, RcWrite
from tests.hosts.engine.engine_pair import Line, Pair, Side


class RcPair(Pair):
    """`rc`: keys of RcConfig, for both ends."""

    def __init__(self, *, rc: dict[str, Any] | None = None, **kwargs: Any):
        self.settings = RcConfig(**(rc or {}))
        super().__init__(**kwargs)

    def _side(self, name: str, config: Config, psn: int | None) -> Side:
        endpoint = Endpoint(name, config, planes=self.planes, seed=Random(self.rng.getrandbits(32)))
        qp = endpoint.create_qp(transport="rocev2", settings=self.settings)
        if psn is not None:
            qp.first_psn = psn
        return Side(endpoint, qp)

    @property
    def ev(self) -> int:
        """The one EV a sends on."""
        return self.a.qp.path[0]

    def psns(self) -> list[int]:
        """Return the PSNs that left a, relative to the first, in order."""
        first = self.a.qp.first_psn
        return [line.packet.psn - first & 0xFFFFFF for line in self.sent(RcWrite)]

    def naks(self) -> list[Line]:
        return [line for line in self.sent(RcAck, "b") if line.packet.syndrome == RcSyndrome.NAK_SEQUENCE]
