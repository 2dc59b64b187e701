"""A page model with slots: what is copied from where, what is learned from steps, and what it makes of other pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.webpage.slot_model import FILE, SlotModel, _apply_change, change_of, features_of, right_kind
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


def test_an_answer_that_ends_an_episode_teaches_nothing(tmp_path: Path) -> None:
    cases = opened()
    SlotModel.fit(cases).save(tmp_path / "one")
    SlotModel.fit([*cases, step(form("York"), "stop [York]", form("York"))]).save(tmp_path / "two")
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


def test_features_are_the_action_its_element_the_page_and_what_fields_hold() -> None:
    case = asked(page(f"{HOME}find", "textbox 'Town'", "link 'Comments (12)'"), "click [2]")
    site, place = (name for name in features_of(case, {}) if name.endswith(" click False link"))
    assert site == f"{case.site} click False link"
    place = place.removesuffix(" click False link")
    assert features_of(case, {"field Town": "York", "field Kind": "", "query": "a=1"}) == [
        "always",
        site,
        "click False link",
        "click False link Comments (0)",
        f"{place} click False link",
        f"{place} click False link Comments (0)",
        "click False link Comments (0) | field Town full",
        "click False link Comments (0) | field Kind empty",
        "click False link Comments (0) | field Town=York",
        "click False link Comments (0) | field Kind=",
    ]
    assert "type True textbox" in features_of(asked(case.state, "type [1] [x] [1]"), {})
    assert "click False absent" in features_of(asked(case.state, "click [9]"), {})
    assert "none False absent" in features_of(asked(case.state, "nonsense"), {})


def test_a_change_is_told_by_its_distance_from_the_element() -> None:
    before = page(f"{HOME}x", "main ''", "\tlink 'Add' pressed: False", "\tlist 'All'", "\t\titem '3'", "\tnote 'old'",
                  "\tnote 'far'", "option 'a' selected: True")  # fmt: skip
    lines = ["main ''", "\tlink 'Add' pressed: True", "\tlist 'Mine'", "\t\titem '4'", "\t\titem 'new'", "\tnote 'new'",
             "\tnote 'further'", "option 'a' selected: False", "link 'tail'"]  # fmt: skip
    case = replace(step(before, "click [2]", page(f"{HOME}x", *lines)), matched=(0, 1, 2, 3, -1, 4, 5, 6, -1))
    # Three lines below the element are near it; the second note and the link at the end are further away.
    assert set(change_of(case)) == {
        ("becomes", " pressed: True"),
        ("renamed", 1, "Mine"),
        ("renamed", 2, "4"),
        ("renamed", 3, "new"),
        ("new", 3, 1, "item", "new", ""),
        ("other", "option", " selected: True", " selected: False"),
    }
    assert change_of(step(before, "click [2]", before)) == ()


def test_a_change_is_made_around_another_element() -> None:
    here = page(
        f"{HOME}x", "main ''", "option 'a' selected: True", "\tlink 'Add'", "\t\titem '3'", "option 'b' selected: True"
    )
    change = (
        ("becomes", " pressed: True"),
        ("new", 2, 1, "note", "{element}!", ""),
        ("other", "option", " selected: True", " selected: False"),
        ("renamed", 1, "9"),
        ("renamed", 7, "nowhere"),
    )
    made = _apply_change(asked(here, "click [3]"), change, {"element": "Add"})
    assert [(item.id, item.line, item.depth) for item in made.items] == [
        (1, "main ''", 0),
        (2, "option 'a' selected: False", 0),  # the nearer one of two
        (3, "link 'Add' pressed: True", 1),
        (4, "item '9'", 2),
        (5, "note 'Add!'", 2),
        (6, "option 'b' selected: True", 0),
    ]
    assert _apply_change(asked(here, "click [99]"), change, {}) == here


def test_lines_are_those_of_most_pages_of_an_outcome_in_their_mean_order() -> None:
    def shown(number: int, *names: str) -> PageTransition:
        return step(
            listing("Mill Park"), "click [3]", page(f"{HOME}shop", *(f"link {name!r}" for name in names)), number
        )

    cases = [
        shown(0, "buy", "first", "buy", "last"),
        shown(1, "buy", "first", "buy", "rare", "last"),
        shown(2, "buy", "buy", "last"),
        shown(3, "first", "x3", "last", "half", "half2"),
    ]
    model = SlotModel()
    model._learn_lines(cases, ["page shop"] * 4)
    # 'buy' stands twice on three pages of four, 'first' on three. Names of one or two contents are unknown, and such a
    # line stands on two pages of four, which is not most of them.
    assert [line.name for line in model.lines["page shop"]] == ["buy", "first", "buy", "last"]
    model = SlotModel()
    model._learn_lines(cases[:1], ["page shop"])  # one content alone knows no better
    assert [line.name for line in model.lines["page shop"]] == ["buy", "first", "buy", "last"]


def test_outcomes_are_learned_by_softmax_regression_as_a_second_implementation_does() -> None:
    cases = opened()[:3]
    model, names = SlotModel(), ["page a", "page b", "page a"]
    model.outcomes = ["page a", "page b"]
    model._learn_outcomes(cases, names, epochs=2, rate=0.4, seed=5)
    weights = {feature: [0.0, 0.0] for feature in model.places}
    for epoch in range(2):
        for number in seeds.generator(5, "page model", epoch).permutation(3):
            own = sorted(set(features_of(cases[number], sources_of(cases[number]))))
            logits = [sum(weights[feature][one] for feature in own) for one in (0, 1)]
            chances = np.exp(logits) / np.exp(logits).sum()
            for feature in own:
                for one in (0, 1):
                    slope = chances[one] - (model.outcomes[one] == names[number])
                    weights[feature][one] -= 0.4 / np.sqrt(len(own)) * slope
    for feature, row in model.places.items():
        assert model.weights[row].tolist() == pytest.approx(weights[feature])


def test_slots_take_values_of_three_characters_whole_and_of_four_inside_a_text() -> None:
    assert to_template("abc", {"typed": "abc"}) == "{typed}" and to_template("ab", {"typed": "ab"}) == "ab"
    assert to_template("xabcx", {"typed": "abc"}) == "xabcx" and to_template("xabcdx", {"typed": "abcd"}) == "x{typed}x"
    assert to_template("abcd abcd", {"typed": "abcd"}) == "{typed} abcd"
    # Of equal values a field explains most, then the element.
    assert to_template("York", {"typed": "York", "element": "York", "field Town": "York"}) == "{field Town}"
    assert to_template("York", {"typed": "York", "element": "York"}) == "{element}"
    sources = sources_of(
        asked(page(f"{HOME}a%20b/c?x=1", "link 'Big OAK'", "heading 'One'", "heading 'Two'"), "click [1]")
    )
    assert sources == {
        "part 1": "a b", "part 2": "c", "query": "x=1", "element": "Big OAK", "element in lower case": "big oak",
        "heading": "One",
    }  # fmt: skip
    assert slotted_url(f"{HOME}a?x=2", {"query": "x=1"}) == f"{HOME}a?x=2" and filled_url(f"{HOME}a", {}) == f"{HOME}a"
    assert slotted_url(f"{HOME}a?x=1&y=", {"query": "x=1"}) == f"{HOME}a?{{query}}&y="


def test_an_unknown_link_leads_to_a_page_of_its_own_site() -> None:
    """Of two sites whose links lead to pages of their own, the one that was seen more often does not win on both."""
    lines = ["RootWebArea 'A'", "link 'Go'"]

    def move(site: str, number: int, link: str) -> PageTransition:
        before = page(f"http://{site}.org/{number}/x/{link}", lines[0], f"link {link!r}")
        return replace(step(before, "click [2]", page(f"http://{site}.org/end", "heading 'End'")), site=site)

    cases = [move("shop", n, f"s{n}a") for n in range(2)] + [move("map", n, f"m{n}b") for n in range(12)]
    model = SlotModel.fit(cases)
    for site in ("shop", "map"):
        unknown = replace(move(site, 7, "never"), state=page(f"http://{site}.org/new/y/z/w", lines[0], "link 'never'"))
        predicted = model.page(unknown)
        assert predicted is not None and predicted.url == f"http://{site}.org/end"
