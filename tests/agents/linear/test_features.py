"""What a page and an intent say to each other, on a page made up by hand."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from oneiro.agents.linear import choice, policy
from oneiro.agents.linear.features import PageFeatures, kind_of, names_in, overlap, parts, stems

STATE = """Task: When is the delivery of my parcel "Blue Lamp" due?
URL: http://post.example/parcels
Tab 0 (current): Parcels

[1] RootWebArea 'Parcels' focused: True
\t[2] navigation 'All'
\t\t[3] link 'Parcels'
\t\t[4] link 'Deliveries'
\t[5] main ''
\t\t[6] combobox 'Show'
\t\t\t[7] option 'All' selected: True
\t\t\t[8] option 'Lost' selected: False
\t\t\t[9] option 'Delivery' selected: False
\t\t\t[10] option 'Sent' selected: False
\t\t\t[11] option 'Kept' selected: False
\t\t\t[12] option 'Back' selected: False
\t\t\t[13] option 'Other' selected: False
\t\t[14] table ''
\t\t\t[15] row ''
\t\t\t\t[16] columnheader 'Parcel'
\t\t\t\t[17] columnheader 'Due'
\t\t\t[18] row ''
\t\t\t\t[19] cell 'Red Lamp'
\t\t\t\t[20] cell '2026-01-02'
\t\t\t\t[21] link 'Open'
\t\t\t[22] row ''
\t\t\t\t[23] cell 'Blue Lamp'
\t\t\t\t[24] cell '2026-03-04'
\t\t\t\t[25] link 'Open'
\t[26] contentinfo ''
\t\t[27] StaticText '12 parcels · 3 vans'"""


def test_an_element_knows_its_column_its_row_and_the_name_before_it() -> None:
    page = PageFeatures(STATE, ())
    found = {element.number: element for element in page.elements}
    assert (found["24"].label, found["24"].behind, found["24"].first) == ("Due", "1", False)
    assert (found["20"].label, found["20"].behind, found["20"].first) == ("Due", "-", True)
    assert found["25"].behind == "1" and found["21"].behind == "-"
    assert found["23"].inside and not found["4"].inside and not found["27"].inside


def test_names_and_asked_words_are_told_apart() -> None:
    page = PageFeatures(STATE, ())
    assert page.names == ["Blue Lamp"] and {"delivery", "parcel", "due"} <= page.intent_words
    assert (
        page.match_names("Blue Lamp") == "is"
        and page.match_names("The blue lamp, new") == "has"
        and page.match_names("Lamp") == "in"
    )
    assert (
        page.match_words("Due") == "whole"
        and page.match_words("Due soon") == "part"
        and page.match_words("Lamp") == "none"
    )
    assert page.here("Parcels") and not page.here("Due")
    assert page.arrived == "none" and page.shown == "is"
    assert PageFeatures(STATE.replace("/parcels", "/blue-lamp"), ()).arrived == "all"


def test_what_is_left_to_press_is_asked_for_and_not_where_the_agent_is() -> None:
    assert PageFeatures(STATE, ()).left == "nothing"  # the link 'Parcels' leads here
    assert PageFeatures(STATE.replace("link 'Open'", "button 'Due'"), ()).left == "button"


def test_an_option_of_a_long_list_is_a_candidate_only_where_it_is_asked_for() -> None:
    actions = choice(STATE, ()).actions
    assert "click [9]" in actions and "click [10]" not in actions
    assert "stop [12]" in actions and "stop [2026-03-04]" in actions


def test_numbers_and_dates_inside_a_text_come_with_what_they_are_told_by() -> None:
    assert parts("12 parcels · 3 vans") == [("12", "parcels"), ("3", "vans")]
    assert parts("Review by ann7 on Jun 4, 2025") == [("Jun 4, 2025", "Review by ann7 on ")]
    assert parts("2026-03-04") == []


def test_words_are_compared_without_their_endings_and_texts_have_kinds() -> None:
    assert stems("Removed stars") == stems("remove star") and stems("the of") == frozenset()
    assert overlap(frozenset("a"), frozenset("ab")) == "whole" and overlap(frozenset("ac"), frozenset("ab")) == "part"
    assert [kind_of(text) for text in ("Jun 4, 2025", "1,200", "$3.20", "Oak", "x" * 30)] == [
        "date",
        "number",
        "mixed",
        "words",
        "long",
    ]
    assert names_in("Which parcel did I get from ann7?") == ["ann7"]


FORM = """Task: Send the lamps "Blue Lamp" from Oakton to Winterby
URL: http://post.example/oakton
Tab 0 (current): Post

[1] RootWebArea 'Post'
\t[2] main ''
\t\t[3] textbox 'From'
\t\t[4] StaticText 'Oakton'
\t\t[5] searchbox 'Where'
\t\t[6] button 'Send it'
\t\t[7] StaticText 'Blue Lamp, 3 lamps'"""
PAST = ("click [9]", "type [3] [Oakton] [0]")


def general(kind: str) -> list[str]:
    """Of three names one stands in the address; no link or button is all that is asked for."""
    cues = ["arrived some after type", "arrived some left nothing", "title none after type", "arrived some shown no"]
    return [f"{kind} {cue}" for cue in (*cues, "begins send", "begins send arrived some left nothing")]


def crossed(kind: str, *names: str) -> list[str]:
    """The asked words with those of a name."""
    return [f"{kind}:{word}:{name}" for word in ("lamp", "send", "to") for name in names]


def turn(kind: str, *features: str, again: bool = False) -> list[str]:
    """After two actions, the last of which typed."""
    return [f"{kind} at 2", f"{kind} after type", f"again {kind} {again}", *(f"{feature} at 2" for feature in features)]


FEATURES = {
    "stop []": [
        *("stop", "stop empty", *crossed("stop", "some"), "stop empty said True arrived some"),
        *(*general("stop empty"), *turn("stop", "stop empty", "stop:lamp:some")),
    ],
    "type [3] [Oakton] [0]": [
        *("type", "type textbox From 1 0 full", "type 3 1 0 full", *crossed("type 1 0", "-")),
        *("type textbox 0 typed True full", "type textbox 0 name arrived some", "type led True full 0 typed True"),
        *("type field none 0", *general("type 0")),
        *turn("type", "type textbox From 1 0 full", "type 3 1 0 full", again=True),
    ],
    "type [5] [Blue Lamp] [1]": [
        *("type", "type searchbox Where 0 1 empty", "type 3 0 1 empty", *crossed("type 0 1", "wher")),
        *("type searchbox 1 typed False empty", "type searchbox 1 quote arrived some"),
        *("type led False empty 1 typed False", "type field none 1", *general("type 1")),
        *turn("type", "type searchbox Where 0 1 empty", "type 3 0 1 empty"),
    ],
    "click [6]": [
        *("click", "click button covered", "click button Send it", *crossed("button", "it", "send")),
        *(*crossed("under", "wher"), "click button wanted part False False"),
        *("click button wanted part inside True arrived some", "click Send it shown no"),
        *("click button wanted part 1 arrived some", "click button called no False"),
        *("click button called no arrived some", "click button behind 1 wanted part", "click button label none no"),
        *(*general("click"), *turn("click", "click button covered", "click button Send it")),
    ],
    "stop [Oakton]": [
        *("stop", "stop StaticText named", "answer after from", "answer like a", "answer to named"),
        *(*crossed("answer", "-"), "answer label none words", "answer label none behind 0"),
        *("answer words behind 0 arrived some", "answer text none is", "answer send the words"),
        *("answer StaticText words part False", "answer StaticText first False inside True label none"),
        *("answer send the first False", *general("answer")),
        *turn("stop", "stop StaticText named", "answer after from"),
    ],
    "stop [Blue Lamp, 3 lamps]": [
        *("stop", "stop StaticText covered", "answer after send it", "answer like a a, 0 a", "answer to covered"),
        *(*crossed("answer", "it", "send"), "answer label part mixed", "answer label part behind 0"),
        *("answer mixed behind 0 arrived some", "answer text part has", "answer send the mixed"),
        *("answer StaticText mixed part False", "answer StaticText first False inside True label part"),
        *("answer send the first False", *general("answer")),
        *turn("stop", "stop StaticText covered", "answer after send it"),
    ],
}
"""Worked by hand. 'from' is a word that asks for nothing, and 'it' stays; a name's own words are not asked for."""


def test_the_features_of_a_candidate_are_those_of_its_page_its_intent_and_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named: list[list[str]] = []
    monkeypatch.setattr(policy, "hash_features", lambda names: named.append(list(names)))
    offered = choice.__wrapped__(FORM, PAST)
    features = dict(zip(offered.actions, named, strict=True))
    assert {action: features[action] for action in FEATURES} == FEATURES
    typed = [f"type [{field}] [{name}] [{enter}]" for field, name, enter in TYPED]
    assert offered.actions == ["stop []", *typed[:6], "stop [Oakton]", *typed[6:], "click [6]", list(FEATURES)[-1]]


TYPED = [(field, name, enter) for field in (3, 5) for name in ("Blue Lamp", "Oakton", "Winterby") for enter in (0, 1)]


def test_features_are_numbers_below_32768_each_once_in_order() -> None:
    assert policy.hash_features(["b", "a", "b"]).tolist() == sorted(zlib.crc32(text) % 32768 for text in (b"a", b"b"))


@pytest.mark.parametrize(
    ("name", "met"),
    [("Lamp", "named"), ("Big", "short"), ("lamp big", "covered"), ("Lamp shade", "shared"), ("Oak", "apart"),
     ("", "apart"), ("is", "short"), ("xy", "apart")],
)  # fmt: skip
def test_a_name_and_an_intent_are_compared(name: str, met: str) -> None:
    assert policy._compare(name, "This is a big lamp") == met


def test_long_texts_are_no_answers_and_long_pages_have_400_candidates() -> None:
    lines = "Task: Tell\n\n[1] RootWebArea 'Page'\n"
    texts = {length: "x" * length for length in (120, 121)} | {1: "a]b"}
    page = lines + "\n".join(f"\t[{number}] StaticText '{text}'" for number, text in texts.items())
    assert choice(page, ()).actions == ["stop []", f"stop [{texts[120]}]"]
    many = lines + "\n".join(f"\t[{number}] button '{number}'" for number in range(2, 500))
    offered = choice(many, ())
    assert offered.actions == ["stop []", *(f"click [{number}]" for number in range(2, 401))]
    assert len(offered.features) == 400


def test_a_softmax_of_any_size_sums_to_one_and_noise_decides_only_at_a_temperature() -> None:
    offered = policy.Choice(["a", "b", "c"], [np.array(own, np.int32) for own in ([0], [0, 1], [2])])
    weights = np.array([1000.0, np.log(3.0), 1000.0])
    assert offered.logits(weights).tolist() == pytest.approx([1000, 1000 + np.log(3), 1000])
    assert offered.chances(weights).tolist() == pytest.approx([0.2, 0.6, 0.2])


def test_names_have_sorts_and_texts_around_25_characters_are_long() -> None:
    page = PageFeatures('Task: Put "Big Mug" of ann/lamp and 12 Oaks to Oakton', ())
    assert [page.sort(name) for name in ("ann/lamp", "Big Mug", "12 Oaks", "Oakton")] == [
        "path", "quote", "number", "name",
    ]  # fmt: skip
    assert [kind_of(text) for text in ("x" * 24, "x" * 25, "7" + "x" * 23, "7" + "x" * 24)] == [
        "words", "long", "mixed", "long",
    ]  # fmt: skip
    assert stems("used using") == {"used", "us"} and stems("ab c") == {"ab"}
    assert len(parts("1 a · 2 b · 3 c · 4 d · 5 e")) == 4
    assert names_in('Give "AB", "CD", "EF", "GH" and "IJ"') == ["AB", "CD", "EF", "GH"]


def test_short_names_are_no_parts_of_others_and_places_behind_a_name_are_counted_to_three() -> None:
    page = PageFeatures("Task: Move 11a to Oakton", ())
    page.plain_names = ["to", "oakton"]
    assert [page.match_names(name) for name in ("", "to", "Tomato", "New Oakton", "oak", "oa", "elm")] == [
        "no", "is", "no", "has", "in", "no", "no",
    ]  # fmt: skip
    lines = "".join(f"\n[{number}] link 'next'" for number in range(3, 7))
    page = PageFeatures(f"Task: Open Oakton\n[1] heading 'Oakton'\n[2] button 'go'{lines}", ())
    assert [element.behind for element in page.elements] == ["0", "1", "1", "2", "3", "3"]
    assert (page.arrived, page.shown) == ("all", "is")
    assert PageFeatures("Task: Open Oakton\n[1] link 'Oakton Road'", ()).shown == "has"
    assert PageFeatures("Task: Open Oakton\n[1] StaticText 'Oakton'", ()).shown == "no"
    assert PageFeatures("Task: Open it\n[1] link 'Open'", ()).left == "link"
