"""Groups of options: a dataclass as one parameter of a command, and the fabric's options from it."""

import os
from dataclasses import fields

import pytest
import typer
from typer.testing import CliRunner

from mrc_testbed.cli.options import LabChoice, SizeOptions, expand_options
from mrc_testbed.errors import UsageError
from mrc_testbed.topologies.lab.options import LabOptions

THREE = SizeOptions(racks=3)


def command_of(calls):
    app = typer.Typer()

    @app.command()
    @expand_options
    def show(word: str, *, size: SizeOptions = THREE, lab: LabChoice, loud: bool = False) -> None:
        """Show them."""
        calls.append((word, size, lab, loud))

    return app


def test_expand_options__every_field_is_an_option_with_its_default():
    calls = []
    assert CliRunner().invoke(command_of(calls), ["a"]).exit_code == 0
    words = ["a", "--planes", "8", "--wires", "veth", "--rootless", "--loud"]
    assert CliRunner().invoke(command_of(calls), words).exit_code == 0
    assert calls == [
        ("a", SizeOptions(4, 3, 2, 2), LabChoice(), False),
        ("a", SizeOptions(8, 3, 2, 2), LabChoice(wires="veth", rootless=True), True),
    ]


def test_expand_options__help_has_them_and_the_text_of_the_command():
    text = CliRunner().invoke(command_of([]), ["--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert "Show them." in text and "--hosts-per-rack" in text and "--servers" in text
    assert "--size" not in text and "--lab" not in text


def test_lab_choice__names_and_defaults_are_those_of_the_fabric():
    usual = LabOptions()
    for field in fields(LabChoice):
        if field.name != "rootless":
            assert field.default == getattr(usual, field.name)


def test_lab_options__take_what_one_command_has_beside_them(tmp_path):
    file = tmp_path / "servers.yaml"
    file.write_text("machines: [{name: a, address: 192.0.2.11}]\n")
    lab = LabChoice(wires="veth", servers=file).lab_options(nic="scapy", denylist="lossy")
    assert (lab.wires, lab.nic, lab.denylist, lab.servers.file) == ("veth", "scapy", "lossy", file)
    with pytest.raises(UsageError, match=r"--servers with --rootless: .* leave --rootless out"):
        LabChoice(servers=file, rootless=True).lab_options()


def test_take_root__says_every_cure(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match=r"run needs root .*: run it with sudo, or `mrc run --rootless`, or give --vi"):
        LabChoice().take_root("run", cure=", or give --virtual")
    LabChoice(servers=tmp_path).take_root("up")
