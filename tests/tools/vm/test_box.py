"""The box that `make vm` makes: calls, files and GRUB's place; no Debian is fetched here."""

from pathlib import Path

import pytest

from tools.vm import box
from tools.vm.box import HandedOver


def test_tree_command__names_release_and_mirror_last():
    words = box.tree_command("debian-13", Path("/tree"), "/etc/apt/own.sources", HandedOver())
    assert words[-3:] == ["trixie", "/tree", "/etc/apt/own.sources"]
    assert box.tree_command("debian-12", Path("/tree"), "", HandedOver())[-2:] == ["bookworm", "/tree"]


def test_tree_command__settings_of_apt_that_are_handed_over_hold_for_mmdebstrap_too():
    handed_over = HandedOver([Path("/etc/apt/apt.conf.d/01own"), Path("/etc/pip.conf")])
    options = [word for word in box.tree_command("debian-12", Path("/tree"), "", handed_over) if "--aptopt" in word]
    assert options == ["--aptopt=Acquire::Languages none", "--aptopt=/etc/apt/apt.conf.d/01own"]


def test_hand_over__copies_files_and_folders_and_sets_variables(tmp_path):
    (tmp_path / "certs").mkdir()
    for name in ("pip.conf", "certs/own.crt"):
        (tmp_path / name).write_text(name)
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    box.hand_over(tree, HandedOver([tmp_path / "pip.conf", tmp_path / "certs"], [("SSL_CERT_FILE", "/certs/own.crt")]))
    copy = tree / tmp_path.relative_to("/")
    assert (copy / "pip.conf").read_text() == "pip.conf"
    assert (copy / "certs" / "own.crt").read_text() == "certs/own.crt"
    assert (tree / "etc/environment").read_text() == "SSL_CERT_FILE=/certs/own.crt\n"


def test_embed_grub__leaves_the_partition_table(tmp_path):
    disk = tmp_path / "disk.raw"
    disk.write_bytes(b"t" * 4096)
    box.embed_grub(disk, b"f" * 512, b"core")
    image = disk.read_bytes()
    assert image[:440] == b"f" * 440 and image[440:512] == b"t" * 72
    assert image[512:520] == b"coretttt" and len(image) == 4096


def test_embed_grub__refuses_a_core_that_would_reach_into_the_partition(tmp_path):
    with pytest.raises(ValueError, match="more than the gap"):
        box.embed_grub(tmp_path / "disk.raw", bytes(512), bytes(1 << 20))
