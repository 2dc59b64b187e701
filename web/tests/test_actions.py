"""Texts of two grammars become actions, and back."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oneiro_web.actions import (
    MAX_ACTION_CHARS,
    Action,
    Kind,
    Malformed,
    format_webarena,
    normal_keys,
    parse_webarena,
    to_webarena,
)
from oneiro_web.errors import WebError
from oneiro_web.page import Node, Page, Printed
from oneiro_web.webrl_actions import WEBRL_SCROLL, parse_webrl, to_webrl


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click [12]", Action(Kind.CLICK, element=12)),
        ("click[12] because it is blue", Action(Kind.CLICK, element=12)),
        ("hover [3]", Action(Kind.HOVER, element=3)),
        ("type [12] [shoes]", Action(Kind.TYPE, element=12, text="shoes", enter=True)),
        ("type [12] [shoes] [0]", Action(Kind.TYPE, element=12, text="shoes")),
        ("type [12] [0]", Action(Kind.TYPE, element=12, text="0", enter=True)),
        ("type [12] [1] [0]", Action(Kind.TYPE, element=12, text="1")),
        ("type [12] [a] [b]", Action(Kind.TYPE, element=12, text="a] [b", enter=True)),
        ("type [12] [one\ntwo] [1]", Action(Kind.TYPE, element=12, text="one\ntwo", enter=True)),
        ("type [12] [– 漢字] [0]", Action(Kind.TYPE, element=12, text="– 漢字")),
        ("press [Ctrl+v]", Action(Kind.PRESS, text="Control+v")),
        ("press [arrowleft]", Action(Kind.PRESS, text="ArrowLeft")),
        ("scroll [down]", Action(Kind.SCROLL, pages=1)),
        ("scroll up", Action(Kind.SCROLL, pages=-1)),
        ("new_tab", Action(Kind.NEW_TAB)),
        ("tab_focus [1]", Action(Kind.FOCUS_TAB, tab=1)),
        ("close_tab", Action(Kind.CLOSE_TAB)),
        ("goto [http://reddit.com/f/a]", Action(Kind.GOTO, text="http://reddit.com/f/a")),
        ("go_back", Action(Kind.BACK)),
        ("go_forward", Action(Kind.FORWARD)),
        ("none", Action(Kind.NOTHING)),
        ("stop [a\nb]", Action(Kind.STOP, text="a\nb")),
        ("stop [see [1]]", Action(Kind.STOP, text="see [1]")),
        ("stop", Action(Kind.STOP)),
        ("stop []", Action(Kind.STOP)),
    ],
)
def test_webarena_texts_are_read(text: str, action: Action) -> None:
    assert parse_webarena(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "click",
        "click [x]",
        "click [１２]",
        "type [12]",
        "press [Hyper+x]",
        "press [foo]",
        "scroll [left]",
        "goto []",
        "fly [1]",
        "stop [",
        "click [12",
        "stop [\ud800]",
        "click [" + "9" * 5000 + "]",
        "stop [" + "a" * MAX_ACTION_CHARS + "]",
    ],
)
def test_other_texts_are_malformed_with_one_line_for_the_agent(text: str) -> None:
    found = parse_webarena(text)
    assert isinstance(found, Malformed)
    assert found.reason and "\n" not in found.reason and len(found.reason) < 400


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("Ctrl+v", "Control+v"),
        ("ctrl+A", "Control+a"),
        ("Meta+a", "Control+a"),
        ("enter", "Enter"),
        ("ESC", "Escape"),
        ("Control+Shift+T", "Control+Shift+T"),
        ("up", "ArrowUp"),
        ("pagedown", "PageDown"),
        ("+", "+"),
        ("x", "x"),
        ("X", "X"),
        ("Control++", "Control++"),
        ("shift", "Shift"),
        (" ", "Space"),
        ("f5", "F5"),
        ("ctrl + c", "Control+c"),
        ("a+b", None),
        ("Enter+Control", None),
        ("", None),
        ("Control+", None),
        ("Control+foo", None),
    ],
)
def test_keys_get_the_names_that_browsers_know(written: str, known: str | None) -> None:
    assert normal_keys(written) == known


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('do(action="Click", element="12")', Action(Kind.CLICK, element=12)),
        ("do(action='Click', element=12)", Action(Kind.CLICK, element=12)),
        ('do(action="Right Click", element="1")', Action(Kind.RIGHT_CLICK, element=1)),
        ('do(action="Type", argument="a", element="1")', Action(Kind.TYPE, element=1, text="a", clear=True)),
        (
            'do(action="Search", argument="a", element="1")',
            Action(Kind.TYPE, element=1, text="a", clear=True, enter=True),
        ),
        ('do(action="Hover", element="1")', Action(Kind.HOVER, element=1)),
        ('do(action="Scroll Down")', Action(Kind.SCROLL, pages=WEBRL_SCROLL)),
        ('do(action="Scroll Up")', Action(Kind.SCROLL, pages=-WEBRL_SCROLL)),
        ('do(action="Press Enter")', Action(Kind.PRESS, text="Enter")),
        ('do(action="Switch Tab", argument="1")', Action(Kind.FOCUS_TAB, tab=1)),
        (
            'do(action="Select Dropdown Option", argument="Red", element="4")',
            Action(Kind.SELECT, element=4, text="Red"),
        ),
        ('do(action="Wait")', Action(Kind.NOTHING)),
        ('do(action="Go Backward")', Action(Kind.BACK)),
        ("go_backward()", Action(Kind.BACK)),
        ("go_forward()", Action(Kind.FORWARD)),
        ('exit(message="N/A")', Action(Kind.STOP, text="N/A")),
        ("exit()", Action(Kind.STOP)),
        ('exit(message="two\nlines")', Action(Kind.STOP, text="two\nlines")),
        (
            '# Element: the button (do it)\n# Note: do(x)\ndo(action="Click", element="2")',
            Action(Kind.CLICK, element=2),
        ),
        (
            'do(action="Type", argument="undo(x) \\d", element="2")',
            Action(Kind.TYPE, element=2, text="undo(x) \\d", clear=True),
        ),
        ('do(action="Wait") then exit(message="done")', Action(Kind.STOP, text="done")),
        ("I will do (that). do(action='Wait')", Action(Kind.NOTHING)),
    ],
)
def test_webrl_texts_are_read(text: str, action: Action) -> None:
    assert parse_webrl(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "click 12",
        'do("Click")',
        "do(action='Fly')",
        "do(action='Click')",
        "do(action='Click', element='x')",
        "do()",
        "do(action='Type', element='1')",
        "do(action='Switch Tab', argument='b')",
        "exit(message=f'x')",
        "exit(message=b'x')",
        "exit(message=__import__('os').system('x'))",
        "exit(**{})",
        "exit(message='a'",
        "exit(message='" + "a" * MAX_ACTION_CHARS + "')",
        "go_backward(1)",
        "do(action='Click', element='1', speed=2)",
        "exit(message='\\ud800')",
        "exit(message='\\x')",
        "exit(message=" + "-" * 300 + "1)",
        "do(" * 5000,
        "exit(message=[1])",
        "exit(note='x')",
    ],
)
def test_what_is_no_webrl_call_is_malformed_with_one_line(text: str) -> None:
    found = parse_webrl(text)
    assert isinstance(found, Malformed)
    assert found.reason and "\n" not in found.reason


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
elements = st.integers(0, 10**6)
keys = st.sampled_from(["Enter", "Control+a", "ArrowLeft", "Control+Shift+T", "x", "F5", "+"])
both = st.one_of(
    st.builds(Action, st.sampled_from([Kind.CLICK, Kind.HOVER]), element=elements),
    st.builds(Action, st.sampled_from([Kind.BACK, Kind.FORWARD, Kind.NOTHING])),
    st.builds(Action, st.just(Kind.FOCUS_TAB), tab=elements),
    st.builds(Action, st.just(Kind.STOP), text=texts),
)
webarena = st.one_of(
    both,
    st.builds(Action, st.just(Kind.TYPE), element=elements, text=texts, enter=st.booleans()),
    st.builds(Action, st.just(Kind.PRESS), text=keys),
    st.builds(Action, st.just(Kind.SCROLL), pages=st.sampled_from([-1.0, 1.0])),
    st.builds(Action, st.sampled_from([Kind.NEW_TAB, Kind.CLOSE_TAB])),
    st.builds(Action, st.just(Kind.GOTO), text=st.from_regex(r"https?://[a-z.]+/[a-z\]\[?=&]*", fullmatch=True)),
)
webrl = st.one_of(
    both,
    st.builds(Action, st.just(Kind.RIGHT_CLICK), element=elements),
    st.builds(Action, st.just(Kind.TYPE), element=elements, text=texts, clear=st.just(True), enter=st.booleans()),
    st.builds(Action, st.just(Kind.SELECT), element=elements, text=texts),
    st.just(Action(Kind.PRESS, text="Enter")),
    st.builds(Action, st.just(Kind.SCROLL), pages=st.sampled_from([-WEBRL_SCROLL, WEBRL_SCROLL])),
)


@settings(max_examples=50, deadline=None)
@given(webarena)
@example(Action(Kind.TYPE, element=1, text="a] [0"))
@example(Action(Kind.STOP, text="] x ["))
def test_webarena_texts_give_their_action_back(action: Action) -> None:
    assert parse_webarena(to_webarena(action)) == action


@settings(max_examples=50, deadline=None)
@given(webrl)
@example(Action(Kind.STOP, text='do(action="Wait") \\ "\n\0\'#'))
def test_webrl_texts_give_their_action_back(action: Action) -> None:
    assert parse_webrl(to_webrl(action)) == action


@settings(max_examples=50, deadline=None)
@given(st.one_of(st.text(), st.text("do(exit)action=\"'\\element[]click 0 1\n#{"), st.text("type[] 01\nstop")))
def test_no_text_raises(text: str) -> None:
    for parse in (parse_webarena, parse_webrl):
        assert isinstance(parse(text), Action | Malformed)


@pytest.mark.parametrize("action", [Action(Kind.SELECT, element=1, text="a"), Action(Kind.TYPE, element=1, clear=True)])
def test_what_webarena_cannot_say_is_refused(action: Action) -> None:
    with pytest.raises(WebError, match="WebArena's grammar"):
        to_webarena(action)


@pytest.mark.parametrize(
    "action", [Action(Kind.GOTO, text="http://a"), Action(Kind.PRESS, text="Tab"), Action(Kind.TYPE)]
)
def test_what_webrl_cannot_say_is_refused(action: Action) -> None:
    with pytest.raises(WebError, match="WebRL's grammar"):
        to_webrl(action)


def test_histories_name_the_element() -> None:
    reply = Node("link", "Reply", id=601)
    box = Node("textbox", "Search  for", {"focused": True, "required": False}, id=35)
    page = Page("http://reddit.com", "Reddit", Node("RootWebArea", "Reddit"), Printed({601: reply, 35: box}))
    assert format_webarena(Action(Kind.CLICK, element=601), page) == "click [601] where [601] is link 'Reply'"
    typed = format_webarena(Action(Kind.TYPE, element=35, text="PNC Park", enter=True), page)
    assert typed == "type [35] [PNC Park ] where [35] is textbox 'Search for' focused: True required: False"
    assert format_webarena(Action(Kind.FOCUS_TAB, tab=2), page) == "page_focus [2]"
    assert format_webarena(Action(Kind.STOP, text="3"), page) == "stop [3]"
    assert "no matching element" in format_webarena(Action(Kind.CLICK, element=7), page)
