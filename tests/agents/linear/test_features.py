"""What a page and an intent say to each other, on a page made up by hand."""

from __future__ import annotations

from oneiro.agents.linear import choice
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
    assert page.names == ["Blue Lamp"] and {"delivery", "parcel", "due"} <= page.asked
    assert (
        page.called("Blue Lamp") == "is" and page.called("The blue lamp, new") == "has" and page.called("Lamp") == "in"
    )
    assert page.wanted("Due") == "whole" and page.wanted("Due soon") == "part" and page.wanted("Lamp") == "none"
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
