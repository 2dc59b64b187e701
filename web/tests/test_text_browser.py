from __future__ import annotations

import pytest

from oneiro_web.actions import Action, Kind
from oneiro_web.browsers.base import Limits, Session, address
from oneiro_web.browsers.text.browser import TextBrowser
from oneiro_web.browsers.text.state import State
from oneiro_web.sites.web import Reply
from web.tests.pages import Pages, html, one, redirect

HERE = "http://here.test/"


def open_page(body: str) -> Session:
    return TextBrowser().open(one(body), [HERE])


def find(session: Session, line: str) -> int:
    """The id of the only printed node that begins so."""
    found = [node.id for node in session.observe().nodes.values() if node.line.startswith(line)]
    assert len(found) == 1, (line, session.observe().text())
    return found[0]


def click(session: Session, line: str):
    return session.act(Action(Kind.CLICK, find(session, line)))


def write(session: Session, line: str, text: str, **more):
    return session.act(Action(Kind.TYPE, find(session, line), text, **more))


def sent(session: Session) -> str:
    """What the form sent, as the echo page shows it."""
    assert session.observe().title == "Sent", session.observe().text()
    return next(n.name for n in session.observe().nodes.values() if n.role == "StaticText")


FORM = """<form action="/to" method="post"><label for="a">Name</label><input id="a" name="a" value="x">
<label><input type="checkbox" name="c" value="1"> Yes</label>
<label><input type="radio" name="r" value="1" checked>One</label>
<label><input type="radio" name="r" value="2">Two</label>
<label for="s">Size</label><select id="s" name="s"><option value="s">Small</option>
<option value="l">Large</option></select>
<label for="t">Text</label><textarea id="t" name="t"></textarea><input type="hidden" name="h" value="~*">
<input name="off" value="no" disabled aria-label="off"><button name="go" value="1">Send</button></form>"""


def test_a_form_sends_what_was_typed_ticked_and_chosen():
    session = open_page(FORM)
    assert write(session, "textbox 'Name'", "y z").failure is None
    assert click(session, "checkbox ' Yes'").failure is None
    click(session, "radio 'Two'")
    session.act(Action(Kind.SELECT, find(session, "combobox 'Size'"), "larg"))
    write(session, "textbox 'Text'", "one\ntwo")
    text = session.observe().text()
    assert "checkbox ' Yes' checked: true" in text
    assert "radio 'One' checked: false" in text
    assert "option 'Large' selected: True" in text
    click(session, "button 'Send'")
    assert sent(session) == "POST a=xy+z&c=1&r=2&s=l&t=one%0D%0Atwo&h=%7E*&go=1"


def test_enter_presses_the_first_button_and_clear_empties_the_field():
    session = open_page(
        '<form action="/to"><input name="q" aria-label="Q" value="old"><button name="b">Go</button></form>'
    )
    assert write(session, "textbox 'Q'", "new", clear=True, enter=True).failure is None
    assert sent(session) == "GET q=new&b="
    assert session.url == "http://here.test/to?q=new&b="


USING = "you are currently using"


@pytest.mark.parametrize(
    ("field", "typed", "words"),
    [
        ("required", "", "Please fill out this field."),
        ('type="email"', "nobody", "Please include an '@' in the email address. 'nobody' is missing an '@'."),
        ('type="number" min="2" max="9"', "1", "Value must be greater than or equal to 2."),
        ('type="number" min="2" max="9"', "10", "Value must be less than or equal to 9."),
        ('type="number"', "1.5", "Please enter a valid value. The two nearest valid values are 1 and 2."),
        ('minlength="4"', "abc", f"Please lengthen this text to 4 characters or more ({USING} 3 characters)."),
        ('pattern="[0-9]{5}"', "12", "Please match the requested format."),
        ('type="checkbox" required', None, "Please check this box if you want to proceed."),
    ],
)  # fmt: skip
def test_a_form_that_is_not_filled_in_is_not_sent(field, typed, words):
    session = open_page(f'<form action="/to"><input name="x" aria-label="X" {field}><button>Go</button></form>')
    element = next(n for n in session.observe().nodes.values() if n.name == "X")
    if typed:
        session.act(Action(Kind.TYPE, element.id, typed))
    outcome = click(session, "button 'Go'")
    assert outcome.failure == f"The form was not sent: {words}"
    assert session.url == HERE
    assert next(n for n in session.observe().nodes.values() if n.name == "X").properties["focused"] is True


def test_typing_where_nothing_is_editable_fails_and_changes_nothing():
    session = open_page('<h1>Head</h1><input aria-label="Fixed" readonly value="v">')
    before = session.observe().text()
    assert write(session, "heading 'Head'", "x").failure == "Element [2] is not a field that can be typed into."
    assert write(session, "textbox 'Fixed'", "x").failure == "Element [3] is not a field that can be typed into."
    assert session.act(Action(Kind.TYPE, None, "x")).failure == "There is no field to type into: click one first."
    assert session.observe().text() == before
    assert session.act(Action(Kind.CLICK, 99)).failure == "There is no element [99] on this page."


def test_links_history_and_anchors():
    session = open_page('<a href="#low">Low</a> <a href="/to?a=1">On</a>')
    click(session, "link 'Low'")
    assert session.url == "http://here.test/#low"
    click(session, "link 'On'")
    assert session.url == "http://here.test/to?a=1"
    assert session.act(Action(Kind.FORWARD)).failure == "There is no page to go forward to."
    session.act(Action(Kind.BACK))
    assert session.url == "http://here.test/#low"
    session.act(Action(Kind.BACK))
    assert session.url == HERE
    assert session.act(Action(Kind.BACK)).failure == "There is no page to go back to."
    session.act(Action(Kind.FORWARD))
    assert session.url == "http://here.test/#low"


def test_what_was_typed_is_forgotten_on_the_way_back():
    session = open_page('<input aria-label="Q"><a href="/to">On</a>')
    write(session, "textbox 'Q'", "abc")
    assert "StaticText 'abc'" in session.observe().text()
    click(session, "link 'On'")
    session.act(Action(Kind.BACK))
    assert "abc" not in session.observe().text()


def test_tabs_open_close_and_come_to_the_front():
    session = open_page('<a href="/to" target="_blank">New</a>')
    assert click(session, "link 'New'").events == ("new tab",)
    assert session.observe().header() == "Tab 0: Page | Tab 1 (current): Sent"
    session.act(Action(Kind.FOCUS_TAB, tab=0))
    assert session.url == HERE
    assert session.act(Action(Kind.FOCUS_TAB, tab=5)).failure == "There is no tab 5; the tabs are 0 to 1."
    session.act(Action(Kind.NEW_TAB))
    assert (
        session.observe().text() == "Tab 0: Page | Tab 1: Sent | Tab 2 (current): \n\n[1] RootWebArea '' focused: True"
    )
    session.act(Action(Kind.CLOSE_TAB))
    session.act(Action(Kind.CLOSE_TAB))
    assert session.url == HERE
    session.act(Action(Kind.CLOSE_TAB))
    assert session.url == "about:blank"


def test_tabs_are_limited():
    session = TextBrowser(Limits(tabs=2)).open(one('<a href="/to" target="_blank">New</a>'), [HERE, HERE])
    assert click(session, "link 'New'").failure == "No more than 2 tabs can be open."


def test_cookies_are_kept_by_host_and_forgotten_when_told():
    web = Pages(
        {
            "http://a.test/": html("<a href='/out'>Out</a>", set_cookie="k=v; Path=/; HttpOnly"),
            "http://a.test/out": html("gone", set_cookie='k=""; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0'),
            "http://b.test/": "b",
        }
    )
    session = TextBrowser().open(web, ["http://a.test/"], {"b.test": {"n": "1"}})
    for url in ("http://a.test/", "http://b.test/", "http://a.test/out", "http://a.test/"):
        session.act(Action(Kind.GOTO, text=url))
    assert [cookie for _, _, cookie, _ in web.asked] == ["", "k=v", "n=1", "k=v", ""]


def test_redirects_are_followed_with_get_and_end():
    web = Pages(
        {
            HERE: '<form method="post" action="/a"><button>Go</button></form><a href="/loop">Loop</a>',
            "http://here.test/a": redirect("/b"),
            "http://here.test/b": "<title>B</title>",
            "http://here.test/loop": redirect("/loop", 302),
            "http://here.test/away": redirect("file:///etc/passwd"),
        }
    )
    browser = TextBrowser()
    session = browser.open(web, [HERE])
    outcome = click(session, "link 'Loop'")
    assert outcome.failure == "The page sends on from address to address without end."
    assert session.url == HERE
    click(session, "button 'Go'")
    assert (session.url, [row[0] for row in web.asked[-2:]]) == ("http://here.test/b", ["POST", "GET"])
    assert session.act(Action(Kind.GOTO, text="http://here.test/away")).events[0] == "blocked"
    assert "passwd" not in session.html()
    assert browser.counts["blocked"] >= 2


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "ftp://x.y/", "chrome://version"]
)
def test_no_other_scheme_is_opened(url):
    session = open_page(f'<a href="{url}">Away</a>')
    scheme = url.split(":")[0]
    for outcome in (click(session, "link 'Away'"), session.act(Action(Kind.GOTO, text=url))):
        assert outcome.failure == f"Addresses that begin with '{scheme}:' are blocked."
        assert outcome.events == ("blocked",)
    assert session.url == HERE


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("here.test", "http://here.test/"),
        ("https://HERE.test:443/a b?c=d e#f", "http://here.test/a%20b?c=d%20e#f"),
        ("about:blank", "about:blank"),
        ("http://here.test@elsewhere.test/", None),
        ("http://here.test\\@elsewhere.test/", None),
        ("http:here.test", None),
        ("http://here%2etest/", None),
        ("http://here.test/\x00", None),
        ("http://[::1]/", None),
        ("localhost:9222", None),
    ],
)
def test_an_address_in_which_two_readers_could_see_two_hosts_is_refused(written: str, asked: str | None):
    assert address(written) == asked


def test_a_host_outside_shows_that_it_is_blocked():
    session = open_page('<a href="http://elsewhere.example/x">Away</a>')
    assert click(session, "link 'Away'").events == ("blocked",)
    assert "This address is blocked." in session.observe().text()


def test_downloads_are_refused_and_counted():
    web = Pages(
        {
            HERE: '<a href="/f">File</a><a href="/t">Text</a>',
            "http://here.test/f": Reply(200, (("content-type", "application/zip"),), b"PK"),
            "http://here.test/t": Reply(200, (("content-type", "text/plain"),), b"a <b> c"),
        }
    )
    session = TextBrowser().open(web, [HERE])
    assert click(session, "link 'File'").events == ("download",)
    assert session.url == HERE
    click(session, "link 'Text'")
    assert "StaticText 'a <b> c'" in session.observe().text()


def test_details_open_and_close():
    session = open_page("<details><summary>More</summary><p>Inside</p></details>")
    assert "Inside" not in session.observe().text()
    click(session, "DisclosureTriangle 'More'")
    assert "DisclosureTriangle 'More' focused: True expanded: True" in session.observe().text()
    assert "StaticText 'Inside'" in session.observe().text()


def test_keys_move_and_change():
    session = open_page(
        '<a href="/to">On</a><input aria-label="Q" value="zyx"><select aria-label="S"><option>1<option>2</select>'
    )
    for key, line in (
        ("Tab", "link 'On' focused: True"),
        ("Tab", "textbox 'Q' focused: True required: False"),
        ("Backspace", "StaticText 'zy'"),
        ("c", "StaticText 'zyc'"),
        ("Tab", "combobox 'S' focused: True hasPopup: menu expanded: False"),
        ("ArrowDown", "option '2' selected: True"),
        ("Shift+Tab", "textbox 'Q' focused: True required: False"),
    ):
        assert session.act(Action(Kind.PRESS, text=key)).failure is None
        assert line in [node.line for node in session.observe().nodes.values()]
    session.act(Action(Kind.PRESS, text="Control+a"))
    session.act(Action(Kind.PRESS, text="Backspace"))
    assert "StaticText 'zyc'" not in session.observe().text()
    assert session.act(Action(Kind.PRESS, text="Hyper+q")).failure == "There is no key named 'Hyper+q'."
    session.act(Action(Kind.PRESS, text="Shift+Tab"))
    session.act(Action(Kind.PRESS, text="Enter"))
    assert session.observe().title == "Sent"


def test_ids_of_the_last_observation_count():
    session = open_page('<h1>Head</h1><a href="/to?a">A</a><input aria-label="Q"><a href="/to?b">B</a>')
    assert session.simplified_html() == (
        '<html> <body> <h1> Head </h1> <a id="0"> A </a> <input id="1"> </input> <a id="2"> B </a> </body> </html>'
    )
    session.act(Action(Kind.TYPE, 1, "hello"))
    assert '<input id="1" data-value="hello"> </input>' in session.simplified_html()
    session.act(Action(Kind.CLICK, 2))
    assert session.url == "http://here.test/to?b"


def test_an_id_of_a_page_that_is_gone_is_refused():
    session = open_page('<a href="/to">A</a><a href="/to">B</a>')
    page = session.observe()
    session.act(Action(Kind.CLICK, 2))
    assert session.act(Action(Kind.CLICK, page.root.children[1].id)).failure == "There is no element [3] on this page."


def test_graders_look_without_leaving_a_trace():
    session = open_page('<input name="q" id="q"><p class="x">One <b>two</b></p><div>Three</div>')
    write(session, "textbox ''", "typed")
    assert session.locate("document.querySelector('[name=\"q\"').value") == "typed"
    assert session.locate('document.querySelector(".x").outerText') == "One two"
    assert session.locate("document.querySelector('body').innerText") == "One two\n\nThree"
    assert session.locate("document.querySelectorAll('b')[0].textContent") == "two"
    assert session.locate("document.querySelector('.none').outerText") == ""
    assert session.locate("__import__('os')") == ""
    assert session.visit("http://here.test/to?z=1").html == "<title>Sent</title><p>GET z=1 </p>"
    assert session.locate("document.querySelector('p').outerText", "http://here.test/to?z=1") == "GET z=1"
    assert session.url == HERE
    assert "StaticText 'typed'" in session.observe().text()


def test_scrolling_hovering_and_waiting_succeed():
    session = open_page("<h1>Head</h1>")
    for action in (
        Action(Kind.SCROLL, pages=1), Action(Kind.SCROLL, pages=-3), Action(Kind.HOVER, find(session, "heading")),
        Action(Kind.RIGHT_CLICK, find(session, "heading")), Action(Kind.NOTHING), Action(Kind.STOP, text="x"),
    ):  # fmt: skip
        assert session.act(action).failure is None


LOCATED = """<div class="submission__inner"><h1 class="t">Head</h1>
<p>See <a href="/a">this</a> and <a href="/b">that</a></p></div>
<div id="notes"><p>one</p><p><b class="body">two</b></p></div>
<select name="s"><option>a<option selected value="2">b</select>
<input name="product[price]" value="9.5"><input type="checkbox" title="General" checked><form class="up"></form>"""
INNER = "document.querySelector('.submission__inner')"
EACH = "e => e.getAttribute('href') || e.getAttribute('src')"
LINKS = f"[...{INNER}.querySelectorAll('[href],[src]')].map({EACH}).join(' ')"


LOCATORS = [
    (f"{INNER}.outerText", "Head\n\nSee this and that"),
    (LINKS, "/a /b"),
    (f"{INNER}.outerText + {LINKS}", "Head\n\nSee this and that/a /b"),
    ("document.querySelector('.t').outerText + (document.querySelector('.no')?.outerText || '')", "Head"),
    ("document.querySelector('[id=\"notes\"').lastElementChild.querySelector('.body').outerText", "two"),
    ("document.querySelector('#notes').firstElementChild.outerText", "one"),
    ("document.querySelector('.t').lastChild.textContent", "Head"),
    ("document.querySelectorAll('.submission__inner a')[1].outerText", "that"),
    ("document.querySelector('[name=\"product[price]\"').value", "9.5"),
    ("document.querySelector('[name=s]').selectedIndex", "1"),
    ("document.querySelector('[name=s]').value", "2"),
    ("document.querySelector('[title=\"General\"').checked.toString()", "true"),
    ("document.querySelector('body').querySelector('form').getAttribute('class')", "up"),
    ("document.querySelector('.no').outerText", ""),
]


@pytest.mark.parametrize(
    ("locator", "found"),
    [
        *LOCATORS,
        ("document.cookie", ""),
        ("fetch('/x')", ""),
        ("document.querySelector('.t').remove()", ""),
    ],
)
def test_locators_of_webarena_are_read_without_running_anything(locator, found):
    session = open_page(LOCATED)
    assert session.locate(locator) == found


@pytest.mark.parametrize("address", ["http://[", "//[::1", "http://[::1/#x", "http://]/"])
@pytest.mark.parametrize("body", ['<a href="{}">On</a>', '<form action="{}"><button>On</button></form>',
                                  '<form action="{}" method="post"><button>On</button></form>'])  # fmt: skip
def test_an_address_without_a_readable_host_is_refused_in_a_sentence(address: str, body: str) -> None:
    session = open_page(body.format(address))
    node = next(node for node in session.observe().nodes.values() if node.role in ("link", "button"))
    outcome = session.act(Action(Kind.CLICK, node.id))
    assert outcome.failure == "That address cannot be read without doubt, so it is blocked."
    assert session.url == "http://here.test/"


@pytest.mark.parametrize("charset", ["undefined", "idna", "hex", "no-such", "utf-8"])
def test_a_page_of_an_unreadable_charset_is_read_as_utf_8(charset: str) -> None:
    body = "<title>Café</title><p>x".encode()
    web = Pages({"http://here.test/": Reply(200, (("content-type", f"text/html; charset={charset}"),), body)})
    assert TextBrowser().open(web, ["http://here.test/"]).observe().title == "Café"


def test_links_forms_and_style_sheets_are_relative_to_the_base() -> None:
    head = '<base href="/deep/er/"><base href="/other/"><link rel="stylesheet" href="s.css">'
    web = Pages({
        "http://here.test/": f'{head}<a href="page">On</a><form action="send"><button>Go</button></form><p>seen</p>',
        "http://here.test/deep/er/s.css": Reply(200, (("content-type", "text/css"),), b"p { display: none }"),
        "http://here.test/deep/er/page": "<title>Page</title>",
        "http://here.test/deep/er/send": "<title>Sent</title>",
    })  # fmt: skip
    for role, title in (("link", "Page"), ("button", "Sent")):
        session = TextBrowser().open(web, ["http://here.test/"])
        page = session.observe()
        assert "seen" not in page.text()
        session.act(Action(Kind.CLICK, next(node.id for node in page.nodes.values() if node.role == role)))
        assert session.observe().title == title


def test_a_base_that_no_browser_may_open_is_ignored() -> None:
    session = open_page('<base href="javascript:x/"><a href="/to">On</a>')
    node = next(node for node in session.observe().nodes.values() if node.role == "link")
    session.act(Action(Kind.CLICK, node.id))
    assert session.url == "http://here.test/to"


def test_a_list_is_asked_once_for_its_chosen_option_however_many_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question walks over the whole list."""
    questions = []
    options = State.options
    monkeypatch.setattr(State, "options", lambda state, select: questions.append(select) or options(state, select))
    session = open_page(f"<select>{'<option>x' * 40}<option selected>last</select>")
    text = session.simplified_html()
    assert text.count("<option") == 41 and '<option data-status="selected"> last </option>' in text
    assert len(questions) == 1
