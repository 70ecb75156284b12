"""Programs of `mrc up --program`: those with the tables of ours, and foreign ones."""

from mrc_testbed.cli.p4 import is_foreign
from tests.repository import P4SRC
from tests.topologies.p4lab.programs import MAC_SWITCH


def test_is_foreign__looks_for_the_tables_of_ours(tmp_path):
    path = tmp_path / "mac.p4"
    path.write_text(MAC_SWITCH)
    assert is_foreign(path)
    assert not is_foreign(P4SRC / "spray.p4")
    assert not is_foreign(P4SRC / "srv6.p4")
