"""The CLI: words, mistakes that cost one line, completion.

No root: the fabric behind it is a stand-in.
"""

import contextlib
import io
import re

import pytest

from mrc_testbed.cli.prompt.commands import WORDS, Style
from mrc_testbed.cli.prompt.commands.links import OTHER_NAMES
from mrc_testbed.cli.prompt.shell import FabricCLI, without_comment
from tests.cli.prompt.session_doubles import Client, output_of
from tests.repository import ROOT

PROGRAMS = ("stat", "capture", "pcap")
"""Words whose names are checked by the program that they start."""
OF_FILES = ("save", "load")
"""Words that take the name of any file."""


@pytest.mark.parametrize(
    "line, answer",
    [
        ("link p1-t0-0", "usage: link NODE NODE up|down, as in: link p1-t0-0 p1-t1-1 down"),
        ("link p1-t0-9 p1-t1-0 down", "no node 'p1-t0-9' (did you mean p1-t0-1, p1-t0-0"),
        ("link h0 h1 down", "no link between h0 and h1 (h0 is linked to: p0-t0-0, p1-t0-0, p2-t0-0, p3-t0-0)"),
        ("link h0 p0-t0-0 sideways", "up or down, not 'sideways'"),
        ("links h0 y", "unexpected 'y': usage: links [NODE]"),
        ("pingall h0", "unexpected 'h0': usage: pingall"),
        ("link p1-t0-0", "; after `link p1-t0-0`: h0, h1, p1-t1-0, p1-t1-1"),
        ("link p1-t0-0 p1-t1-1", "; after `link p1-t0-0 p1-t1-1`: up, down"),
        ("link h0 p1", "; no 'p1' (has: p0-t0-0, p1-t0-0, p2-t0-0, p3-t0-0)"),
        ("power p1-t1", "; no 'p1-t1' (did you mean p1-t1-1, p1-t1-0, p1-t0-1? has: h0, h1,"),
        ("cut", "no command 'cut'. Cure: `link NODE NODE down` for a link, `power NODE off` for a switch or a host"),
        ("cut p1-t0-0 p1-t1-1", "Cure: `link p1-t0-0 p1-t1-1 down`"),
        ("down h0", "Cure: `power h0 off`, or for one link `link h0 NODE down` (NODE: p0-t0-0, p1-t0-0,"),
        (
            "down p1-t1-0",
            "Cure: `power p1-t1-0 off`, or for one link `link p1-t1-0 NODE down` (NODE: p1-t0-0, p1-t0-1)",
        ),
        ("cut p1-t0-0 p1-t1-7", "no node 'p1-t1-7' (did you mean p1-t1-1,"),
        ("restore p1-t0-0 p1-t1-1", "Cure: `link p1-t0-0 p1-t1-1 up`"),
        ("restore", "`heal` for all that is injected"),
        ("cut h0 h1", "no link between h0 and h1 (h0 is linked to: p0-t0-0,"),
        ("lnik h0 p0-t0-0 down", "no command or node 'lnik' (did you mean: link"),
        ("p1-t0-7 ip link", "no command or node 'p1-t0-7' (did you mean: p1-t0-1"),
        ("power h9 off", "no node 'h9'"),
        ("power h0 h9 off", "no node 'h9'"),
        ("power p0-t0-0 maybe", "on or off, not 'maybe'"),
        ("power", "usage: power NODE... on|off"),
        ("switch p0-t0-0 explode", "start or stop, not 'explode'"),
        ("evs h0", "usage: evs HOST HOST, as in: evs h0 h2"),
        ("evs h0 p0-t0-0", "no host 'p0-t0-0' (has: h0, h1, h2, h3)"),
        ("evs h0 h0", "give two hosts: evs HOST HOST"),
        ("faults soon", "no choice 'soon' (has: active, all)"),
        ("rate p0-t0-0 p0-t1-1", "usage: rate LINK RATE|off, as in: rate p0-t0-0 p0-t1-1 5M"),
        ("rate p0-t0-0", "p0-t0-0 has several links: usage: rate LINK RATE|off"),
        ("rate p0-t0-0 p0-t1-1 fast", "rate 'fast': give bits/s, such as 500K, 10M or 1G"),
        ("delay p0-t0-0 p0-t1-1 5 parsecs", "usage: delay LINK TIME|off"),
        ("delay p0-t0-0 p0-t1-1 5parsecs", "time '5parsecs': no unit 'parsecs'"),
        ("loss p0-t0-0 p0-t1-1 200%", "share '200%': must be 0 to 1, or 0% to 100%"),
        ("loss p0-t0-0 p1-t1-1 1%", "no link between p0-t0-0 and p1-t1-1"),
        ("loss p0-t0-7-eth3 1%", "no node or port 'p0-t0-7-eth3' (did you mean p0-t0-1-eth3"),
        ("corrupt", "usage: corrupt LINK SHARE|PATTERN|off"),
        ("oneway p0-t0-0 p0-t1-1 maybe", "usage: oneway SENDER RECEIVER [off]"),
        ("blackhole h0", "no switch 'h0'"),
        ("blackhole p0-t1-0 now", "usage: blackhole SWITCH [off]"),
        ("flap p0-t0-0 p0-t1-1 2s 5", "'5': give how often as x5"),
        ("flap p0-t0-0 p0-t1-1 0s", "period_s = 0.0: give 0.01 to 3600 seconds"),
        ("flap p0-t0-0-eth3 2s", "a flap takes the whole link"),
        ("reboot", "usage: reboot NODE... [TIME]"),
        ("reboot p0-t1-0 soon", "no node 'soon'"),
        ("reboot p0-t1-0 2x", "time '2x': no unit 'x'; give seconds"),
        ("save", "usage: save FILE [--tables]"),
        ("save --all", "no option '--all' (has: --tables)"),
        ("save /no/such/folder/x", "cannot write /no/such/folder/x: No such file or directory"),
        ("load", "usage: load [SWITCH] FILE"),
        ("load /no/such/file", "/no/such/file:1:1: cannot be read: No such file or directory"),
        ("heal all", "heal takes no name, it undoes everything: 'all'. Cure: `heal`; nothing is injected now"),
        ("queues p0-t0-9", "no switch or port 'p0-t0-9' (did you mean"),
        ("counters h0", "no switch 'h0'"),
        ("check many", "'many' is no number of probes"),
        ("deny p0-t9-0", "no switch 'p0-t9-0' (did you mean p0-t1-0, p0-t0-0, p3-t1-0? has:"),
        ("allow --host h9 p0-t1-0", "no host 'h9'"),
        ("trace h0 h2", "usage: trace HOST HOST EV [--full], as in: trace h0 h2 0x0101"),
        ("trace h0 h0 1", "give two hosts"),
        ("p4sh h0", "no switch 'h0'"),
        ("send h0 h2 --fast", "no option '--fast' (has: --rocev2)"),
        ("iperf h0", "usage: iperf [HOST HOST]"),
        ("iperfudp 5M h0", "usage: iperfudp [RATE HOST HOST]"),
        ("evs h0 h2", "h0: no agent listens"),
        ("send h0 h0", "h0 cannot send to itself"),
        ("send h0 h2 nofile", "'nofile' is neither a file nor a size such as 4096, 16M or 1G"),
        ('send h0 h2 "with space.bin"', "'with space.bin' is neither a file"),
        ('links "p0-t0-0', "no closing quotation: close the quotes"),
        ("send h0 h2 1M fast", "rate 'fast': give bits/s"),
        ("send h0 h2 900000G", "has no room for two copies"),
        ("send", "usage: send HOST HOST [SIZE|FILE] [RATE] [--rocev2]"),
        ("pcap", "usage: capture PORT|NODE [OPTIONS], as in: capture p1-t0-0-eth3"),
        ("dpctl show", "switches here speak P4Runtime"),
        ("detach", "this prompt is at no terminal. Cure: `mrc up -d`"),
        ("source /no/such", "cannot read /no/such: No such file"),
        ("help lin", "no command 'lin' (did you mean: link, links"),
        ("h0", "usage: h0 COMMAND, as in: h0 ip link"),
        ('"', "no command or node"),
        ("!!!", "no command or node"),
    ],
)
def test_mistakes__are_one_line_that_helps(cli, line, answer):
    output = output_of(cli, line)
    assert answer in output and output.startswith("*** ") and "\n" not in output


def test_heal__with_a_name_says_what_undoes_each_fault(cli):
    lines = {
        "link p1-t0-0 p1-t1-1 down": "`link p1-t0-0 p1-t1-1 up`",
        "power p0-t1-0 off": "`power p0-t1-0 on`",
        "oneway p2-t0-0 p2-t1-1": "`link p2-t0-0 p2-t1-1 up`",
        "loss h0 p0-t0-0 1%": "`loss h0 p0-t0-0 off`",
        "blackhole p3-t1-0": "`blackhole p3-t1-0 off`",
    }
    for line in lines:
        output_of(cli, line)
    output = output_of(cli, "heal p1-t0-0")
    assert output.endswith(f"Cure: `heal`, for a single fault {' or '.join(lines.values())}")
    for undoing in lines.values():
        assert not output_of(cli, undoing.strip("`")).startswith("***")
    assert output_of(cli, "injected") == "nothing is injected"


@pytest.mark.parametrize(
    "word", [*OTHER_NAMES, *(word.name for word in WORDS.values() if word.name not in (*PROGRAMS, *OF_FILES))]
)
def test_wrong_names__are_no_internal_error(cli, word):
    """Every word with names that do not exist, from one to five of them."""
    for count in range(1, 6):
        output = output_of(cli, f"{word} {' '.join(['zz9-x'] * count)}")
        assert output.startswith("*** ") and "internal error" not in output, output
        assert "zz9-x" in output or "usage" in output, output


def test_p4sh__of_a_switch_that_is_off_says_the_cure_at_once(cli):
    output_of(cli, "power p1-t0-0 off")
    assert output_of(cli, "p4sh p1-t0-0") == "*** p1-t0-0 is off and has no tables. Cure: `power p1-t0-0 on`"


@pytest.mark.parametrize(
    "line, text",
    [
        ("h0 ls # all files", "h0 ls "),
        ("# nothing", ""),
        ('h0 echo "a # b" #c', 'h0 echo "a # b" '),
        ("sh echo 'x#y' a#b", "sh echo 'x#y' a#b"),
    ],
)
def test_comment__begins_outside_quotes(line, text):
    assert without_comment(line) == text


def test_bug__is_one_line_with_the_traceback_in_a_log(cli, fabric, tmp_path):
    fabric.agents["h0"] = Client(health={})
    assert re.fullmatch(
        r"\*\*\* internal error in 'evs': KeyError: 'peers' \(traceback in .*/cli.log\)", output_of(cli, "evs h0 h2")
    )
    assert "Traceback" in (tmp_path / "cli.log").read_text()
    assert cli.failures == 1


@pytest.mark.parametrize(
    "line, offers",
    [
        ("link p1-t0", "p1-t0-0 p1-t0-1"),
        ("link p1-t0-0 p1-t1", "p1-t1-0 p1-t1-1"),
        ("link h0 ", "p0-t0-0 p1-t0-0 p2-t0-0 p3-t0-0"),
        ("link p1-t0-0 p1-t1-1 d", "down"),
        ("power p3-t1", "p3-t1-0 p3-t1-1"),
        ("power p1-t0-0 o", "on off"),
        ("links p0-t1", "p0-t1-0 p0-t1-1"),
        ("send h0 h", "h1 h2 h3"),
        ("p2-t1", "p2-t1-0 p2-t1-1"),
        ("rou", "routes"),
        ("loss p0-t0-0 p0-t1-0 1", "1% 10%"),
        ("loss p0-t0-0-eth3 o", "off"),
        ("flap h1 ", "p0-t0-0 p1-t0-0 p2-t0-0 p3-t0-0"),
        ("reboot p2-t1", "p2-t1-0 p2-t1-1"),
        ("trace h0 h2 0x01", "0x0100 0x0101"),
        ("trace h0 ", "h0 h1 h2 h3"),
        ("capture p2-t1-1-eth", "p2-t1-1-eth1 p2-t1-1-eth2"),
        ("faults a", "active all"),
        ("faults --", "--json"),
        ("evs h0 h", "h1 h2 h3"),
        ("evs h0 h2 h", ""),
        ("ping h0 h2 -", "-c -i -W -v --json"),
        ("deny p1-t0-0 p1", "p1-t1-0 p1-t1-1"),
        ("deny --host h0 p1-t1", "p1-t1-0 p1-t1-1"),
        ("allow --h", "--host"),
        ("capture h0 --s", "--snaplen"),
        ("help li", "link links"),
        ("help wo", ""),
        ("switch p1-t1-0 st", "start stop"),
        ("notices o", "on off"),
        ("h0 mrc-w", "mrc-write-bw mrc-write-lat"),
        ("h0 mrc-ping h", "h0 h1 h2 h3"),
        ("source pypro", "pyproject.toml"),
        ("source docs/desi", "docs/design/"),
        ("send h0 h2 READ", "README.md"),
    ],
)
def test_completion__offers_what_fits(cli, line, offers):
    word, _, _ = line.partition(" ")
    text = line.rpartition(" ")[2]
    complete = getattr(cli, f"complete_{word}", cli.completedefault) if " " in line else cli.completenames
    ends = [name if name.endswith("/") else f"{name} " for name in offers.split()]
    assert complete(text, line, len(line) - len(text), len(line)) == ends


def test_help__every_word_has_an_example(cli):
    overview = output_of(cli, "help")
    for word in WORDS.values():
        assert (f"  {word.name} " in overview) == bool(word.group)
        assert re.search(rf"^{word.name}\b", output_of(cli, f"help {word.name}"), re.MULTILINE)
        assert len(word.summary) < 110
    for name in [
        "nodes",
        "net",
        "sh",
        "py",
        "px",
        "intfs",
        "dump",
        "gterm",
        "x",
        "pingall",
        "iperf",
        "dpctl",
        "switch",
    ]:
        assert output_of(cli, f"help {name}")


def test_docs__tell_every_word():
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name, word in WORDS.items() if f"`{name}`" not in page] == []


def test_source__does_the_commands_in_a_file(cli, fabric, tmp_path):
    (tmp_path / "cut").write_text("# cut both\nlink p0-t0-0 p0-t1-0 down\n\nlink p0-t0-0 p0-t1-1 down # second\n")
    assert output_of(cli, f"source {tmp_path / 'cut'}") == "p0-t0-0 p0-t1-0 is down\np0-t0-0 p0-t1-1 is down"


class LetGoError(Exception):
    """The session let go of its terminal."""


@pytest.mark.parametrize(("lines", "lets_go"), [("detach\n", True), ("time detach\nexit\n", False), ("exit\n", False)])
def test_detach__lets_go_when_it_ends_the_session_itself(fabric, tmp_path, lines, lets_go):
    def let_go(_log):
        raise LetGoError

    (tmp_path / "lines").write_text(lines)
    with (tmp_path / "lines").open() as typed_lines:
        cli = FabricCLI(fabric, typed_lines, io.StringIO())
        with pytest.raises(LetGoError) if lets_go else contextlib.nullcontext():
            cli.run_session(let_go=let_go)
    assert ("goes on: `mrc attach" in cli.stdout.getvalue()) is lets_go


def test_colours__only_on_a_terminal(fabric, cli, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Style.for_stream(Terminal()).colour and not Style.for_stream(io.StringIO()).colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Style.for_stream(Terminal()).colour
    output_of(cli, "link p0-t0-0 p0-t1-0 down")
    assert "\033" not in output_of(cli, "links p0-t1-0")
    cli.session.style = Style(True)
    assert "\033[1;31mDOWN\033[0m " in output_of(cli, "links p0-t1-0")
