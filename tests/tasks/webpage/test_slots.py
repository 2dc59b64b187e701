"""A page model with slots: what is copied from where, what is learned from steps, and what it makes of other pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.tasks.webpage.slot_model import FILE, SlotModel, right_kind
from oneiro.tasks.webpage.slots import Line, fill_template, filled_url, slotted_url, sources_of, to_template
from oneiro.tasks.webpage.state import PageSituation, PageState, PageTransition
from oneiro_web.diff import Item

HOME = "http://site.org/"


def page(url: str, *lines: str) -> PageState:
    """A page; a tab in front of a line is one more level."""
    found = [Item(number, line.lstrip("\t"), line.count("\t")) for number, line in enumerate(lines, start=1)]
    return PageState(url, tuple(found))


def form(town: str = "", kind: str = "Any") -> PageState:
    held = [f"\t\tStaticText {town!r}"] if town else []
    options = [f"\t\toption {name!r} selected: {name == kind}" for name in ("Any", "Cafe", "Park")]
    lines = ["RootWebArea 'Find'", "\theading 'Find a place'", "\ttextbox 'Town'", *held, "\tcombobox 'Kind'", *options]
    return page(f"{HOME}find", *lines, "\tbutton 'Go'")


def place(name: str, number: int, phone: str) -> PageState:
    lines = ["RootWebArea 'Place'", f"\theading {name!r}", "\tterm 'Phone'", f"\tStaticText {phone!r}", "\tlink 'Back'"]
    return page(f"{HOME}place/{number}", *lines)


def listing(*names: str) -> PageState:
    return page(f"{HOME}list", "RootWebArea 'List'", "\theading 'Places'", *(f"\tlink {name!r}" for name in names))


def step(state: PageState, action: str, after: PageState, content: int = 0, reward: float = 0.0) -> PageTransition:
    case = PageTransition("map", "Find it.", state, action, after=after, reward=reward, content=content)
    same = tuple(range(len(after.items))) if state.same_document(after) else (-1,) * len(after.items)
    return replace(case, matched=same)


def asked(state: PageState, action: str) -> PageSituation:
    return PageSituation("map", "Find it.", state, action)


def opened() -> list[PageTransition]:
    """Links of lists that lead to places, on four contents."""
    names = [
        ("Mill Park", "Old Mill"),
        ("Red Fig", "Salt House"),
        ("North Gate", "Elm Court"),
        ("Blue Owl", "Fen Hall"),
    ]
    return [
        step(
            listing(*pair),
            f"click [{3 + which}]",
            place(pair[which], 10 * number + which, f"555-{number}{which}"),
            number,
        )
        for number, pair in enumerate(names)
        for which in (0, 1)
    ]


def test_sources_are_what_fields_hold_once_the_action_is_done() -> None:
    typed = sources_of(asked(form("York"), "type [3] [shire] [0]"))
    assert typed["field Town"] == "Yorkshire"  # typing does not clear a field
    assert typed["typed"] == "shire" and typed["field Kind"] == "Any" and typed["heading"] == "Find a place"
    chosen = sources_of(asked(form("York"), "click [7]"))
    assert chosen["field Kind"] == "Cafe" and chosen["element"] == "Cafe" and chosen["field Town"] == "York"


def test_texts_and_addresses_come_back_from_their_slots() -> None:
    sources = {"element": "Mill Park", "field Town": "Mill", "query": "a=1&b=two", "part 1": "find"}
    assert to_template("Mill Park", sources) == "{element}"  # the longest value counts
    assert to_template("Welcome to Mill!", sources) == "Welcome to {field Town}!"
    assert fill_template("{element} in {field Town}", sources) == "Mill Park in Mill"
    assert fill_template("{field Street}", sources) == "?"
    url = f"{HOME}place/17/Mill%20Park?a=1&b=two&town=Mill"
    assert slotted_url(url, sources) == f"{HOME}place/0/{{element}}?{{query}}&town={{field Town}}"
    assert filled_url(slotted_url(url, sources), sources) == f"{HOME}place/0/Mill%20Park?a=1&b=two&town=Mill"


def test_a_link_leads_to_a_page_with_its_name_also_for_names_never_seen() -> None:
    model = SlotModel.fit(opened())
    told = model.page(asked(listing("Quiet Heron", "Tall Oak"), "click [4]"))
    assert told is not None and told.url == f"{HOME}place/0"
    lines = [item.line for item in told.items]
    assert "heading 'Tall Oak'" in lines and "term 'Phone'" in lines
    assert "StaticText '?'" in lines  # a phone number that nothing tells
    assert not any("Mill Park" in line or "555" in line for line in lines)
    true = step(listing("Quiet Heron", "Tall Oak"), "click [4]", place("Tall Oak", 99, "555-99"))
    assert right_kind(told, true)
    assert not right_kind(true.state, true) and not right_kind(None, true)


def test_typing_fills_the_field_and_a_choice_moves_the_mark() -> None:
    typed = [
        replace(step(form(), f"type [3] [{town}] [0]", form(town), n), matched=(0, 1, 2, -1, 3, 4, 5, 6, 7))
        for n, town in enumerate(("York", "Leeds", "Ripon"))
    ]
    chosen = [step(form(), "click [6]", form(kind="Cafe"), n) for n in range(3)]
    model = SlotModel.fit([*typed, *chosen, *opened()])
    assert model.page(asked(form(), "type [3] [Whitby] [0]")) == form("Whitby")
    # From Cafe to Park: the mark leaves what was chosen before, which was never seen to be left.
    assert model.page(asked(form(kind="Cafe"), "click [7]")) == form(kind="Park")


def test_rewards_do_not_reach_the_model(tmp_path: Path) -> None:
    cases = opened()
    SlotModel.fit(cases).save(tmp_path / "one")
    SlotModel.fit([replace(case, reward=1.0, done=True) for case in cases]).save(tmp_path / "two")
    assert (tmp_path / "one" / FILE).read_bytes() == (tmp_path / "two" / FILE).read_bytes()


def test_a_saved_model_predicts_the_same_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    model = SlotModel.fit(opened())
    model.save(tmp_path)
    again, case = SlotModel.load(tmp_path), asked(listing("Quiet Heron"), "click [3]")
    assert again.page(case) == model.page(case) is not None
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace('"places": [', '"places": ["more", '))
    with pytest.raises(OneiroError, match="damaged"):
        SlotModel.load(tmp_path)
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(OneiroError, match="cannot be read"):
        SlotModel.load(tmp_path)


@pytest.mark.parametrize("name", ["{element}", "{query}", "\\", "'", "?", "", "{", "a" * 5000])
def test_hostile_names_and_actions_give_a_page_or_none(name: str) -> None:
    model = SlotModel.fit(opened())
    for action in ("click [3]", "click [99]", "type [3] [{field Town}] [1]", "go_back", "none", "nonsense"):
        told = model.page(asked(listing(name), action))
        assert told is None or len(told.items) < 100
    assert SlotModel().page(asked(listing(name), "click [3]")) is None
    assert model.page(asked(PageState(HOME, ()), "click [3]")) is not None
    assert Line.of(listing(name).items[2]).role == "link"
