"""Words that run a program in a host: with its device, its folder and the run's token."""

from __future__ import annotations

import json

import pytest

from mrc_testbed.hosts.jobs import host_words as words_module
from mrc_testbed.hosts.jobs.host_words import host_words
from mrc_testbed.ipc.rundir import TOKEN_VARIABLE, RunFiles


@pytest.fixture
def folder(tmp_path, monkeypatch):
    RunFiles(tmp_path).state_file.write_text(json.dumps({"token": "secret"}))
    monkeypatch.setattr(words_module, "program_environment", lambda *_arguments, **_options: {"LD_PRELOAD": "libmrc"})
    return tmp_path


def test_host_words__enter_the_namespaces_of_a_process_and_the_folder(folder):
    words = host_words(folder, "h0", 7, ["ls", "-l"], start_folder="/here", environment=["A=b"])
    assert words[:5] == ["nsenter", "--target=7", "--net", "--mount", "--"]
    assert {"MRC_HOST=h0", f"{TOKEN_VARIABLE}=secret", "A=b", "LD_PRELOAD=libmrc"} <= set(words)
    assert words[-3:] == ["/here", "ls", "-l"]


def test_host_words__without_a_process_stay_here(folder):
    words = host_words(folder, "h0", None, ["ls"], start_folder="/here")
    assert words[0] == "env" and words[-1] == "ls" and "/here" not in words
