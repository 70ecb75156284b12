"""Client arbitration, rule by rule (P4Runtime specification §5.3)."""

from __future__ import annotations

import pytest
from finsy.proto import U128, p4r, rpc_code

from switch.daemon.arbitration import MAX_CONTROLLERS, Arbitration, ArbitrationError, Controller

OK, BACKUP, NO_PRIMARY = rpc_code.OK, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND


class Client:
    """A controller that remembers what it was told: (status code, election id) pairs."""

    def __init__(self, arbitration: Arbitration) -> None:
        self.arbitration = arbitration
        self.told: list[tuple[int, int]] = []
        self.controller = Controller(self._take)

    def _take(self, message: p4r.StreamMessageResponse) -> None:
        update = message.arbitration
        self.told.append((update.status.code, U128.decode(update.election_id)))

    def ask(self, election_id: int, *, device_id: int = 1, role: str = "") -> Client:
        message = p4r.MasterArbitrationUpdate(device_id=device_id)
        if election_id:
            message.election_id.CopyFrom(U128.encode(election_id))
        if role:
            message.role.name = role
        self.arbitration.update(self.controller, message)
        return self

    def leave(self) -> None:
        self.arbitration.leave(self.controller)


@pytest.fixture
def arbitration() -> Arbitration:
    return Arbitration(1)


def test_first_controller__is_primary(arbitration):
    assert Client(arbitration).ask(10).told == [(OK, 10)]
    assert arbitration.may_write("", 10)
    assert not arbitration.may_write("", 9) and not arbitration.may_write("", 0)


def test_lower_id__is_backup_and_only_it_is_told(arbitration):
    first, second = Client(arbitration).ask(10), Client(arbitration).ask(9)
    assert (first.told, second.told) == ([(OK, 10)], [(BACKUP, 10)])


def test_higher_id__takes_over_and_all_are_told(arbitration):
    first, second = Client(arbitration).ask(10), Client(arbitration).ask(2**64 + 1)
    assert first.told == [(OK, 10), (BACKUP, 2**64 + 1)]
    assert second.told == [(OK, 2**64 + 1)]
    assert not arbitration.may_write("", 10)


def test_same_id__second_is_refused_with_words_that_clients_look_for(arbitration):
    Client(arbitration).ask(10)
    with pytest.raises(ArbitrationError, match=r"Election id 10 is already used by another") as caught:
        Client(arbitration).ask(10)
    assert caught.value.code == rpc_code.INVALID_ARGUMENT


def test_primary_leaves__backups_hear_and_the_one_that_asks_gets_it(arbitration):
    first, second = Client(arbitration).ask(10), Client(arbitration).ask(9)
    first.leave()
    assert second.told[-1] == (NO_PRIMARY, 10)
    assert arbitration.primary_election_id() is None
    second.ask(10)
    assert second.told[-1] == (OK, 10)


def test_id_below_the_highest_ever__stays_backup_without_a_primary(arbitration):
    Client(arbitration).ask(10).leave()
    assert Client(arbitration).ask(9).told == [(NO_PRIMARY, 10)]


def test_primary_lowers_its_id__steps_down(arbitration):
    first, second = Client(arbitration).ask(10), Client(arbitration).ask(5)
    first.ask(4)
    assert first.told[-1] == second.told[-1] == (NO_PRIMARY, 10)


def test_same_id_again__keeps_the_primary(arbitration):
    first = Client(arbitration).ask(10)
    assert first.ask(10).told == [(OK, 10), (OK, 10)]


def test_without_id__never_primary(arbitration):
    assert Client(arbitration).ask(0).told == [(NO_PRIMARY, 0)]
    assert Client(arbitration).ask(0).told == [(NO_PRIMARY, 0)]


def test_roles__are_elected_apart(arbitration):
    first, second = Client(arbitration).ask(10), Client(arbitration).ask(10, role="telemetry")
    assert first.told == second.told == [(OK, 10)]
    assert len(arbitration.primaries()) == 2


def test_stream_cannot_change_device_or_role(arbitration):
    client = Client(arbitration).ask(10)
    for change in ({"device_id": 2}, {"role": "other"}):
        with pytest.raises(ArbitrationError, match="open another") as caught:
            client.ask(11, **change)
        assert caught.value.code == rpc_code.FAILED_PRECONDITION


def test_role_config__must_be_empty(arbitration):
    message = p4r.MasterArbitrationUpdate(device_id=1, role=p4r.Role(name="x"))
    message.role.config.value = b"\x01"
    with pytest.raises(ArbitrationError, match="leave it empty"):
        arbitration.update(Client(arbitration).controller, message)


def test_too_many_controllers__are_refused(arbitration):
    for election_id in range(1, MAX_CONTROLLERS + 1):
        Client(arbitration).ask(election_id)
    with pytest.raises(ArbitrationError, match="close one") as caught:
        Client(arbitration).ask(1000)
    assert caught.value.code == rpc_code.RESOURCE_EXHAUSTED
