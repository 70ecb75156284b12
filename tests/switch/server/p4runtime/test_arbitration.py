"""Client arbitration, rule by rule (P4Runtime §5.3)."""

from __future__ import annotations

import pytest
from finsy.proto import U128, p4r, rpc_code, stratum
from google.protobuf import any_pb2

from mrc_testbed.switch.server.p4runtime.arbitration import (
    MAX_CONTROLLERS,
    UNSET,
    ArbitratedController,
    Arbitration,
    ArbitrationError,
)
from mrc_testbed.switch.server.p4runtime.errors import RpcError

OK, BACKUP, NO_PRIMARY = rpc_code.OK, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND


class Client:
    """A controller that remembers what it was told: (status code, election id) pairs."""

    def __init__(self, arbitration: Arbitration) -> None:
        self.arbitration = arbitration
        self.statuses: list[tuple[int, int]] = []
        self.configs: list[stratum.P4RoleConfig] = []
        self.controller = ArbitratedController(self._take)

    def _take(self, message: p4r.StreamMessageResponse) -> None:
        update = message.arbitration
        self.statuses.append((update.status.code, U128.decode(update.election_id)))
        self.configs.append(stratum.P4RoleConfig())
        update.role.config.Unpack(self.configs[-1])

    def send_bid(self, election_id: int, *, device_id: int = 1, role: str | p4r.Role = "") -> Client:
        message = p4r.MasterArbitrationUpdate(device_id=device_id)
        if election_id != UNSET:
            message.election_id.CopyFrom(U128.encode(election_id))
        if role:
            message.role.CopyFrom(p4r.Role(name=role) if isinstance(role, str) else role)
        self.arbitration.update(self.controller, message)
        return self

    def leave(self) -> None:
        self.arbitration.leave(self.controller)


@pytest.fixture
def arbitration() -> Arbitration:
    return Arbitration(1)


def test_first_controller__is_primary(arbitration):
    assert Client(arbitration).send_bid(10).statuses == [(OK, 10)]
    assert arbitration.may_write("", 10)
    assert not arbitration.may_write("", 9) and not arbitration.may_write("", 0)


def test_lower_id__is_backup_and_only_it_is_told(arbitration):
    first, second = Client(arbitration).send_bid(10), Client(arbitration).send_bid(9)
    assert (first.statuses, second.statuses) == ([(OK, 10)], [(BACKUP, 10)])


def test_higher_id__takes_over_and_all_are_told(arbitration):
    first, second = Client(arbitration).send_bid(10), Client(arbitration).send_bid(2**64 + 1)
    assert first.statuses == [(OK, 10), (BACKUP, 2**64 + 1)]
    assert second.statuses == [(OK, 2**64 + 1)]
    assert not arbitration.may_write("", 10)


def test_same_id__second_is_refused_with_words_that_clients_look_for(arbitration):
    Client(arbitration).send_bid(10)
    with pytest.raises(ArbitrationError, match=r"Election id 10 is already used by another") as caught:
        Client(arbitration).send_bid(10)
    assert caught.value.code == rpc_code.INVALID_ARGUMENT


def test_primary_leaves__backups_hear_and_the_one_that_asks_gets_it(arbitration):
    first, second = Client(arbitration).send_bid(10), Client(arbitration).send_bid(9)
    first.leave()
    assert second.statuses[-1] == (NO_PRIMARY, 10)
    assert arbitration.primary_election_id() is None
    second.send_bid(10)
    assert second.statuses[-1] == (OK, 10)


def test_id_below_the_highest_ever__stays_backup_without_a_primary(arbitration):
    Client(arbitration).send_bid(10).leave()
    assert Client(arbitration).send_bid(9).statuses == [(NO_PRIMARY, 10)]


def test_primary_lowers_its_id__steps_down(arbitration):
    first, second = Client(arbitration).send_bid(10), Client(arbitration).send_bid(5)
    first.send_bid(4)
    assert first.statuses[-1] == second.statuses[-1] == (NO_PRIMARY, 10)


def test_same_id_again__keeps_the_primary(arbitration):
    first = Client(arbitration).send_bid(10)
    assert first.send_bid(10).statuses == [(OK, 10), (OK, 10)]


def test_without_id__never_primary_and_the_id_0_is_one(arbitration):
    assert Client(arbitration).send_bid(UNSET).statuses == [(NO_PRIMARY, 0)]
    assert Client(arbitration).send_bid(UNSET).statuses == [(NO_PRIMARY, 0)]
    assert not arbitration.may_write("", UNSET)
    assert Client(arbitration).send_bid(0).statuses == [(OK, 0)]
    assert arbitration.may_write("", 0)


def test_roles__are_elected_apart(arbitration):
    first, second = Client(arbitration).send_bid(10), Client(arbitration).send_bid(10, role="telemetry")
    assert first.statuses == second.statuses == [(OK, 10)]
    assert len(arbitration.primaries()) == 2


def test_stream_cannot_change_device_or_role(arbitration):
    client = Client(arbitration).send_bid(10)
    for change in ({"device_id": 2}, {"role": "other"}):
        with pytest.raises(ArbitrationError, match="open another") as caught:
            client.send_bid(11, **change)
        assert caught.value.code == rpc_code.FAILED_PRECONDITION


def role(name: str, **fields) -> p4r.Role:
    out = p4r.Role(name=name)
    out.config.Pack(stratum.P4RoleConfig(**fields))
    return out


def test_role_config__is_that_of_the_primary_and_all_are_told(arbitration):
    first, second = Client(arbitration).send_bid(10, role=role("lag", shared_p4_ids=[1, 2])), Client(arbitration)
    second.send_bid(9, role=role("lag", shared_p4_ids=[3], can_push_pipeline=True))
    scope = arbitration.scope("lag")
    assert scope.ids == {1, 2} and not scope.pushes and not scope.receives
    second.send_bid(11, role=role("lag", exclusive_p4_ids=[3], can_push_pipeline=True))
    assert arbitration.scope("lag").ids == {3} and arbitration.scope("lag").pushes
    assert first.configs[-1].exclusive_p4_ids == [3]
    assert arbitration.scope("").has_id(7) and not arbitration.scope("lag").has_id(7)


@pytest.mark.parametrize(
    ("bad_role", "words"),
    [
        (p4r.Role(name="x", config=any_pb2.Any(value=b"\1")), "want stratum.P4RoleConfig"),
        (p4r.Role(name="x", config=any_pb2.Any(type_url="a/stratum.P4RoleConfig", value=b"\xff")), "decoded"),
        (role("x", exclusive_p4_ids=[5], shared_p4_ids=[5]), "0x5 is both"),
        (role("x", shared_p4_ids=[4]), "0x4 is exclusive, and role 'other'"),
    ],
)
def test_role_config__what_cannot_be_is_refused(arbitration, bad_role, words):
    Client(arbitration).send_bid(10, role=role("other", exclusive_p4_ids=[4]))
    with pytest.raises(RpcError, match=words) as caught:
        Client(arbitration).send_bid(10, role=bad_role)
    assert caught.value.code == rpc_code.INVALID_ARGUMENT
    assert not arbitration.knows("x") and arbitration.role_names() == ["other"]


def test_too_many_controllers__are_refused(arbitration):
    for election_id in range(1, MAX_CONTROLLERS + 1):
        Client(arbitration).send_bid(election_id)
    with pytest.raises(ArbitrationError, match="close one") as caught:
        Client(arbitration).send_bid(1000)
    assert caught.value.code == rpc_code.RESOURCE_EXHAUSTED
