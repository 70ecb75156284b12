"""Words of other shells at the socket of a front process: output, failures, JSON, notices, who may."""

import io
import json
import threading
import types

import pytest

from mrc_testbed.cli.prompt import word_server
from mrc_testbed.cli.prompt.word_client import WordClient, _with_whole_path
from mrc_testbed.cli.prompt.word_server import serve_words
from mrc_testbed.console.terminal import Style
from mrc_testbed.ipc.framing import JsonlError
from mrc_testbed.ipc.peers import SocketPeer
from mrc_testbed.ipc.rundir import FabricError

LINK = "p0-t0-0 p0-t1-0"


@pytest.fixture
def prompt(cli, fabric, tmp_path):
    """A prompt whose socket is open."""
    fabric.run_dir.prompt_socket = tmp_path / "prompt.sock"
    with serve_words(cli):
        yield cli


@pytest.fixture
def give(prompt, tmp_path):
    """Give a line as another shell does; (failures, output, texts of failures)."""

    def give(line, **options):
        texts, failures = [], []
        client = WordClient(tmp_path, prompt=options.pop("prompt", 0))
        number = client.run_line(line, texts.append, failures.append, columns=100, **options)
        return number, "".join(texts), failures

    return give


def test_line__is_done_by_the_front_process_and_healed_there(give, prompt, fabric):
    assert give(f"link {LINK} down") == (0, f"{LINK} is down\n", [])
    assert not fabric.link_is_up(fabric.plan.link(*LINK.split()))
    assert "another shell: link p0-t0-0 p0-t1-0 down" in prompt.stdout.getvalue()  # whoever sits there is told
    prompt.onecmd("heal")
    assert fabric.link_is_up(fabric.plan.link(*LINK.split()))


def test_line__that_fails_says_so_apart_from_output(give, prompt):
    number, output, (failure,) = give("loss p0-t0-0 p9 10%")
    assert (number, output) == (1, "") and "no node 'p9'" in failure
    assert prompt.failures == 0  # not the prompt's own
    number, output, (failure,) = give("nonsense")
    assert number == 1 and "no command or node 'nonsense'" in failure


def test_line__as_json(give):
    assert json.loads(give(f"loss {LINK} 10%", as_json=True)[1]) == {
        "word": "loss",
        "arguments": [*LINK.split(), "10%"],
        "text": f"loss on {LINK}: 10 %",
    }
    (injection,) = json.loads(give("injected", as_json=True)[1])
    assert injection["kind"] == "loss"
    assert give("loss p0-t0-0", as_json=True)[:2] == (1, "")


def test_line__has_width_and_colours_of_its_readers_terminal(give, monkeypatch):
    widths = []
    monkeypatch.setattr(Style, "fold", lambda style, text, hang=4: widths.append(style) or text)
    give("injected", colour=True)
    assert widths[-1].width == 100 and widths[-1].colour


def test_mininets_words__answer_whoever_gave_them(give, prompt):
    prompt.run_session(("py 6 * 7",))
    assert "42" in prompt.stdout.getvalue()
    assert give("help nonsense")[0] == 1


def test_wait__tells_the_waiting_shell_how_transfers_end(prompt):
    thread_output = io.StringIO()
    with prompt.outputs.waiting(thread_output, 0):
        thread = threading.Thread(target=prompt.outputs.print_text, args=("send 1: arrived",))
        thread.start()
        thread.join()
    assert thread_output.getvalue() == "send 1: arrived\n"
    assert prompt.stdout.getvalue().count("send 1: arrived") == 1  # and its own prompt


def test_wait__tells_a_shell_once_how_earlier_transfers_ended(give, prompt):
    transfer = {"name": "send 1", "state": "done", "outcome": "send 1: arrived", "bytes": 1, "bytes_done": 1}
    prompt.transfers = types.SimpleNamespace(progress=lambda: [transfer], wait=lambda show=None: 0)
    assert give("wait", prompt=7)[1] == "no transfer is running\n"  # that prompt got a notice
    prompt.outputs.known_transfers.clear()
    assert give("wait")[1] == "send 1: arrived\nno transfer is running\n"
    assert give("wait")[1] == "no transfer is running\n"


def test_notices__go_to_attached_prompts_but_not_to_the_one_that_did_it(give, prompt, tmp_path):
    received = []
    with WordClient(tmp_path, prompt=7).notices() as notices:
        give("blackhole p1-t1-0", prompt=8)
        received.append(next(notices))
        give("blackhole p1-t1-1", prompt=7)
        prompt.outputs.notify("fault 1: ...")
        received.append(next(notices))
    assert received == ["another shell: blackhole p1-t1-0", "fault 1: ..."]


def test_notices__begin_before_the_client_goes_on(prompt, tmp_path):
    with WordClient(tmp_path, prompt=7).notices() as notices:
        assert prompt.outputs._listeners  # nothing that happens from here on is missed
        prompt.outputs.notify("fault 1: ...")
        assert next(notices) == "fault 1: ..."


def test_notices__cut_off_who_does_not_read(prompt, tmp_path, monkeypatch):
    """A stopped prompt costs one timeout; then it is gone, and others go on hearing."""
    monkeypatch.setattr(word_server, "NOTICE_S", 0.05)
    text = "x" * (1 << 20)  # more than the buffers of a socket hold
    with (
        WordClient(tmp_path, prompt=7).notices() as stopped_notices,
        WordClient(tmp_path, prompt=8).notices() as reading,
    ):
        received = []
        thread = threading.Thread(target=lambda: received.extend((next(reading), next(reading))))
        thread.start()
        prompt.outputs.notify(text)
        prompt.outputs.notify("fault 1: ...")
        thread.join()
        assert received == [text, "fault 1: ..."]
        assert list(stopped_notices) == []  # the part of a line that it got is none


def test_notices__of_another_users_fabric_are_refused(prompt, tmp_path, monkeypatch):
    monkeypatch.setattr(word_server, "peer_of", lambda _connection: SocketPeer(1, 1001, 1))
    with pytest.raises(JsonlError, match=r"user 1001: the fabric belongs to user"), WordClient(tmp_path).notices():
        raise AssertionError("entered")


def test_host__has_a_pid(prompt, fabric, tmp_path):
    fabric.hosts["h0"] = types.SimpleNamespace(namespace_pid=42)
    assert WordClient(tmp_path).host_pid("h0") == 42
    with pytest.raises(JsonlError, match="no host 'h9' here"):
        WordClient(tmp_path).host_pid("h9")


def test_peer__of_another_user_is_refused(give, monkeypatch):
    monkeypatch.setattr(word_server.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(word_server, "peer_of", lambda _connection: SocketPeer(1, 1001, 1))
    with pytest.raises(JsonlError, match=r"user 1001: the fabric belongs to user 1000. Cure: "):
        give("heal")


def test_internal_error__reaches_no_shell_as_a_traceback(give, monkeypatch):
    monkeypatch.setattr(word_server.RemoteCLI, "precmd", lambda _cli, _line: 1 / 0)
    with pytest.raises(JsonlError, match="internal error"):
        give("heal")


def test_client__where_nobody_serves_says_what_to_do(tmp_path):
    client = WordClient(tmp_path)
    with pytest.raises(FabricError, match=r"no fabric is running in .* Cure: "):
        client.host_pid("h0")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(FabricError, match="takes no words of other shells"):
        client.host_pid("h0")


def test_client__sends_the_whole_path_of_a_file(give, fabric, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"1234")
    _, _, (failure,) = give("send h0 h2 model.bin 0")
    assert "rate" in failure and "neither a file" not in failure


@pytest.mark.parametrize(
    ("line", "whole_line"),
    [
        ("save --tables new.yaml", "save --tables {folder}/new.yaml"),
        ("save new.yaml --tables", "save {folder}/new.yaml --tables"),
        ("reload p0-t1-0 my.p4", "reload p0-t1-0 {folder}/my.p4"),
        ("load p0-t1-0 my.p4", "load p0-t1-0 {folder}/my.p4"),
        ("link p0-t0-0 my.p4 down", "link p0-t0-0 my.p4 down"),
    ],
)
def test_client__knows_where_words_take_files(line, whole_line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.p4").write_text("")
    assert _with_whole_path(line) == whole_line.format(folder=tmp_path)
