"""Web pages in few tokens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oneiro import worlds
from oneiro.agents.prompts import DialogueSettings, compact, history_message

TREE = """Task: Find it.
URL: http://x.com/
Tab 0 (current): X

[1] RootWebArea 'Search · X' focused: True
\t[2] link 'X'
\t[3] search ''
\t\t[4] searchbox 'Search'
\t[5] navigation 'Account'
\t\t[6] checkbox '' checked: True
\t[7] heading "Tom's café"
\t\t[8] link "Tom's café"
\t[9] StaticText 'Mode'
\t[10] combobox 'Mode' hasPopup: menu expanded: False
\t\t[11] MenuListPopup ''
\t\t\t[12] option 'Car' selected: True
\t\t\t[13] option 'Foot' selected: False
\t[14] definition ''
\t\t[15] StaticText 'a  b\\nc'"""


def test_a_page_keeps_ids_names_and_states_and_nothing_twice() -> None:
    assert compact(TREE).splitlines() == [
        "Task: Find it.",
        "[1] page Search · X",
        "[2] link X",
        "[4] searchbox Search",
        "[6] checkbox checked",
        "[8] link Tom's café",
        "[10] combobox Mode",
        "[12] option Car selected",
        "[13] option Foot",
        "[15] a b c",
    ]


def test_of_a_long_list_only_the_selected_option_is_shown() -> None:
    options = "\n".join(f"[{n}] option 'o{n}' selected: {n == 5}" for n in range(1, 9))
    assert compact(options) == "[5] option o5 selected"


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=300))
def test_any_text_can_be_compacted(text: str) -> None:
    assert isinstance(compact(text), str)
    hostile = f"[1] link {text!r} focused: True"
    assert len(compact(hostile)) <= len(hostile) + 1


def test_with_context_actions_a_turn_shows_past_actions_and_one_state() -> None:
    world = worlds.make("frozen-lake")
    past = [("page one", ("click [1]",), 0.0), ("page two", (), 0.0)]
    brief = DialogueSettings(context="actions", brief=True)
    assert history_message(world, past, 3, "page three", 5, brief) == "click [1]\nnothing valid\npage three"
    long = history_message(world, past, 3, "page three", 5, DialogueSettings(context="actions"))
    assert "What you have done so far:\nclick [1]\nnothing valid" in long and "page one" not in long
    assert long.startswith(world.instruction) and "Turn 3:\nState:\npage three" in long
