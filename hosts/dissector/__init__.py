"""Wireshark and tshark dissector of MRC: mrc.lua, one file to copy or to load with `-X lua_script:`."""

from pathlib import Path

SCRIPT = Path(__file__).with_name("mrc.lua")
"""The plugin."""
