"""The live view from the prompt."""

from tests.cli.prompt.session_doubles import output_of


def test_dash__asks_who_began_the_prompt_for_the_page(cli):
    cli.session.open_page = lambda session: f"live view of {len(session.plan.hosts)} hosts"
    assert output_of(cli, "dash") == "live view of 4 hosts"


def test_dash__without_a_page_says_where_there_is_one(cli):
    assert "use the prompt of `mrc up`" in output_of(cli, "dash")
    assert "usage: dash" in output_of(cli, "dash now")
