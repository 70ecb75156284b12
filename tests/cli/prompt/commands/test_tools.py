"""The live view from the prompt."""

from tests.cli.prompt.session_doubles import said


def test_dash__asks_who_began_the_prompt_for_the_page(cli):
    cli.session.open_page = lambda its: f"live view of {len(its.plan.hosts)} hosts"
    assert said(cli, "dash") == "live view of 4 hosts"


def test_dash__without_a_page_says_where_there_is_one(cli):
    assert "it belongs to `mrc up`" in said(cli, "dash")
    assert "usage: dash" in said(cli, "dash now")
