"""The reference of scenario keys: as the models are, whole, and with examples that are true."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.language import model
from mrc_testbed.faults.terms import Part
from tools.manual import scenario_keys


def test_page__is_as_the_models_make_it():
    page = scenario_keys.PAGE.read_text()
    assert page == scenario_keys.with_reference(page), "run `python -m tools.manual.scenario_keys`"


def test_sections__have_every_part_of_a_file():
    parts = {kind for kind in vars(model).values() if isinstance(kind, type) and issubclass(kind, Part)}
    assert parts - {kind for _, kind in scenario_keys.SECTIONS} == {Part, model.KindLine, model.ScenarioFault}


@pytest.fixture(scope="module")
def examples():
    return scenario_keys.read_examples()


@pytest.mark.parametrize(("heading", "part"), scenario_keys.SECTIONS)
def test_rows__have_type_and_meaning(examples, heading, part):
    for key, words, default, _, example, meaning in scenario_keys.rows_of(part, examples):
        assert words and words != "any", (heading, key)
        assert default and meaning.endswith((".", "...")), (heading, key)
        assert example or "mapping" in words, (heading, key)


@pytest.mark.parametrize(
    ("value", "units", "text"),
    [(10e6, scenario_keys.BITS, "10M"), (1 << 18, scenario_keys.BYTES, "256K"), (0.0005, scenario_keys.TIMES, "500us")],
)
def test_scaled__is_what_a_file_writes(value, units, text):
    assert scenario_keys.scale(value, units) == text
