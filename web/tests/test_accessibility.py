"""Expected lines were read from Chromium 150 (`Accessibility.getFullAXTree`); test_chromium.py asks it again."""

from __future__ import annotations

import pytest

from oneiro_web.browsers.text.accessibility import Builder, tree
from oneiro_web.browsers.text.document import DEEPEST, Document, serialise
from oneiro_web.browsers.text.state import State
from oneiro_web.browsers.text.styles import Styles
from oneiro_web.page import number

FLEX = "<style>.f{display:flex}.i{display:inline-block}ul,ol{list-style:none}</style>"
CASES = {
    "landmarks": (
        '<header><a href="/">Brand</a></header><nav aria-label="Main"><a href="/x">X</a></nav>'
        "<main><h1>T <i>u</i></h1></main>"
        "<footer><p>Foot</p></footer>",
        ["link 'Brand'", "navigation 'Main'", " link 'X'", "main ''", " heading 'T u'", "contentinfo ''",
         " StaticText 'Foot'"],
    ),
    "inside": (
        "<main><header>a1</header><article><footer>b1</footer></article><section>c1</section>"
        '<section aria-label="S">d1</section><aside>e1</aside></main>',
        ["main ''", " sectionheader ''", "  StaticText 'a1'", " article ''", "  sectionfooter ''", "   StaticText 'b1'",
         " StaticText 'c1'", " region 'S'", "  StaticText 'd1'", " complementary ''", "  StaticText 'e1'"],
    ),
    "white space": (
        "<p>  lead <span> mid </span> trail  </p><p>text<a href=x> bb </a>cc</p><p>one<br>two</p>",
        ["StaticText 'lead '", "StaticText 'mid '", "StaticText 'trail'", "StaticText 'text'", "link ' bb '",
         "StaticText 'cc'", "StaticText 'one'", "LineBreak '\\n'", "StaticText 'two'"],
    ),
    "flex": (
        FLEX + '<div class="f"><a href="x">xx</a> (3) <b>yy</b></div>'
        '<label class="f"><input type="checkbox"> Flex</label>',
        ["link 'xx'", "StaticText '(3)'", "StaticText 'yy'", "checkbox 'Flex' checked: false"],
    ),
    "names from contents": (
        FLEX + "<table><tr><th>H</th></tr><tr><td><span>a</span><span>b</span> <b>c</b><div>d</div>e<br>f</td></tr>"
        "<tr><td><button>g</button><button>h</button></td></tr><tr><td><form><a href=x>i</a></form></td></tr>"
        '<tr><td>j<img alt="k" src="x">l</td></tr><tr><td><input value="m" aria-label="n">o</td></tr>'
        '<tr><td><a href="x"><img alt="p" src="x"></a>q</td></tr></table>',
        ["table ''", " row ''", "  columnheader 'H' required: False", " row ''", "  cell 'ab c d e f'"],
    ),
    "cells": (
        "<table><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr><th>C</th><td>D</td></tr></tbody></table>"
        "<table><tr><td>E</td></tr></table>",
        ["table ''", " rowgroup ''", "  row ''", "   columnheader 'A' required: False",
         "   columnheader 'B' required: False", " row ''", "  rowheader 'C' required: False", "  cell 'D'",
         "LayoutTable ''", " LayoutTableRow ''", "  LayoutTableCell 'E'"],
    ),
    "labels": (
        '<label for="a">Name</label><input id="a" required value="v1"><label>Wrap <input> after</label>'
        '<label><input type="radio" name="r" checked>One</label>'
        '<label><input type="checkbox"> Agree to <a href="t">it</a></label>'
        '<input placeholder="ph"><input title="ti" placeholder="ph"><input aria-labelledby="l1 l2"><i id="l1">x1</i>'
        '<i id="l2" hidden>x2</i>',
        ["StaticText 'Name'", "textbox 'Name' required: True", " StaticText 'v1'", "StaticText 'Wrap '",
         "textbox 'Wrap after' required: False", "radio 'One' checked: true",
         "checkbox ' Agree to it' checked: false", "link 'it'", "textbox 'ph' required: False",
         "textbox 'ti' required: False", "textbox 'x1 x2' required: False"],
    ),
    "controls": (
        '<select aria-label="S" disabled><optgroup label="G"><option>o1</optgroup><option>o2</select>'
        '<input type="number" aria-label="N" min="1" value="7"><input type="search" aria-label="Q" required>'
        '<input type="password" aria-label="P" value="abc"><input type="submit"><button disabled>Off</button>'
        '<select multiple aria-label="M"><option selected>m1<option>m2</select>',
        ["combobox 'S' disabled: True hasPopup: menu expanded: False", " MenuListPopup ''", "  group 'G'",
         "   option 'o1' disabled: True", "  option 'o2' disabled: True",
         "spinbutton 'N' required: False valuemin: 1 valuemax: 0 valuetext: 7", "searchbox 'Q'",
         "textbox 'P' required: False", " StaticText '•••'", "button 'Submit'", "button 'Off' disabled: True",
         "listbox 'M' multiselectable: True orientation: vertical required: False", " option 'm1' selected: True",
         " option 'm2' selected: False"],
    ),
    "live and grouped": (
        '<div role="alert">Saved</div><fieldset><legend>L <b>g</b></legend><input aria-label="x"></fieldset>'
        "<dl><dt>T <b>u</b></dt><dd>D1</dd></dl><hr><p><em>e1</em> <code>c1</code> <time>t1</time></p>"
        "<details><summary>Sum</summary><p>hidden</p></details><p hidden>gone</p><p aria-hidden=true>gone</p>",
        ["alert '' live: assertive atomic: True relevant: additions text", " StaticText 'Saved'", "group 'L g'",
         " textbox 'x' required: False", "DescriptionList ''", " term 'T u'", " definition ''", "  StaticText 'D1'",
         "separator '' orientation: horizontal", "emphasis ''", " StaticText 'e1'", "code ''", " StaticText 'c1'",
         "time ''", " StaticText 't1'", "group ''", " DisclosureTriangle 'Sum' expanded: False"],
    ),
    "lists": (
        "<ul><li>item<ul><li>inner</li></ul></li></ul><ol start=3><li>num</li></ol>" + "<menu>x1</menu>",
        ["ListMarker '• '", "StaticText 'item'", "ListMarker '◦ '", "StaticText 'inner'", "ListMarker '3. '",
         "StaticText 'num'", "StaticText 'x1'"],
    ),
    "images": (
        '<img alt="pic" src="x"><img alt="" src="x"><img src="x"><svg role="img" aria-label="map"></svg>',
        ["image 'pic'", "image ''", "image 'map'"],
    ),
    "atoms at the end": (
        '<p><a href=x><img alt="p" src="x"> </a> <a href=y>one<br></a><a href=z>q <img alt="r" src="x"> s</a></p>',
        ["link 'p'", " image 'p'", "link 'one '", " LineBreak '\\n'", "link 'q r s'", " image 'r'"],
    ),
    "labels of boxes": (
        '<p><input type="checkbox" id="c"><label for="c">Yes</label></p><p><label><input type="radio"> No</label></p>'
        '<p><label for="t">Text</label><input id="t"></p>'
        '<p><label for="d">Deep <b>er</b></label><input type="checkbox" id="d"></p>',
        ["checkbox 'Yes' checked: false", "radio ' No' checked: false", "StaticText 'Text'",
         "textbox 'Text' required: False", "StaticText 'Deep '", "StaticText 'er'",
         "checkbox 'Deep er' checked: false"],
    ),
    "disabled fieldset": (
        "<fieldset disabled><legend>L <button>On</button></legend><button>Off</button><input></fieldset>"
        "<fieldset><legend><button>Up</button></legend></fieldset>",
        ["group 'L On'", " button 'On'", " button 'Off' disabled: True", " textbox '' disabled: True required: False",
         "group 'Up'", " button 'Up'"],
    ),
    "live regions": (
        '<p><b aria-live="polite" role="note">Now</b></p><div aria-live="off" role="note">Later</div>'
        '<div role="log">Entries</div><div aria-live="assertive" aria-atomic="true">Whole</div>'
        '<p role="alert" aria-atomic="false">Fire</p><p role="status" aria-atomic="odd">Odd</p><output>Sum</output>',
        ["note '' live: polite atomic: False relevant: additions text", " StaticText 'Now'", "note ''",
         " StaticText 'Later'", "log '' live: polite atomic: False relevant: additions text", " StaticText 'Entries'",
         "generic '' live: assertive atomic: True relevant: additions text", " StaticText 'Whole'",
         "alert '' live: assertive atomic: False relevant: additions text", " StaticText 'Fire'",
         "status '' live: polite atomic: True relevant: additions text", " StaticText 'Odd'",
         "status '' live: polite atomic: True relevant: additions text", " StaticText 'Sum'"],
    ),
}  # fmt: skip


def lines(html: str, state: State | None = None) -> list[str]:
    """The printed tree with a space for each level, without its root and ids."""
    document = Document(f"<!doctype html><title>T</title>{html}", 20_000)
    nodes, _ = number(tree(document, state or State(), Styles(document.styles)), 20_000)
    root, *rest = nodes.values()
    assert root.line == "RootWebArea 'T' focused: True"
    return [" " * (node.depth - 1) + node.line for node in rest]


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_tree_is_chromiums(name):
    html, expected = CASES[name]
    found = lines(html)
    if name == "names from contents":
        cells = [line.strip() for line in found if line.startswith("  cell")]
        assert cells == ["cell 'ab c d e f'", "cell 'g h'", "cell ''", "cell 'j k l'", "cell 'm o'", "cell 'pq'"]
        found = found[:5]
    assert found == expected


def test_what_a_person_does_lies_over_the_page():
    document = Document(
        '<input id="t" value="old"><input type="checkbox" id="c"><select id="s"><option>a<option>b</select>', 100
    )
    state = State()
    state.values[document.ids["t"]] = "new"
    state.checked[document.ids["c"]] = True
    state.chosen[document.ids["s"]] = frozenset([document.find("option")[1]])
    state.focus = document.ids["t"]
    nodes, _ = number(tree(document, state, Styles(())), 100)
    assert [node.line for node in nodes.values()] == [
        "RootWebArea '' focused: True", "textbox '' focused: True required: False", "StaticText 'new'",
        "checkbox '' checked: true",
        "combobox '' hasPopup: menu expanded: False", "MenuListPopup ''", "option 'a' selected: False",
        "option 'b' selected: True",
    ]  # fmt: skip


def test_a_document_survives_writing_and_reading():
    body = '<p class="x&quot;y">1 &lt; 2</p><pre>\n\nz</pre><br>'
    html = f"<html><head><title>a&amp;b</title></head><body>{body}</body></html>"
    again = serialise(Document(html, 100).root)
    assert serialise(Document(again, 100).root) == again
    assert Document(again, 100).find("pre")[0].text() == "\nz"


def test_deep_and_large_pages_are_cut():
    deep = Document("<div>" * 5000 + "end", 20_000)
    assert max(_depth(element) for element in deep.elements) <= DEEPEST + 1
    assert any("end" in line for line in lines("<div>" * 5000 + "end"))
    large = Document("<p>x</p>" * 50_000, 1000)
    assert large.cut and len(large.elements) == 1001


def _depth(element) -> int:
    depth = 0
    while element.parent is not None:
        element, depth = element.parent, depth + 1
    return depth


def test_styles_are_read_with_their_weight():
    styles = Styles(["p{display:block} .a p{display:none} p.b{display:flex} @media print{p{display:grid}} /* p{} */"])
    document = Document('<div class="a"><p>x</p><p class="b">y</p></div><p>z</p>', 100)
    assert [styles.of(p)["display"] for p in document.find("p")] == ["none", "flex", "block"]


def test_brackets_in_attributes_and_names_do_not_end_a_tag():
    assert lines('<p title="a > b">first</p><img alt="x < y > z"><a href="/?q=1<2">link</a>last') == [
        "StaticText 'first'", "image 'x < y > z'", "link 'link'", "StaticText 'last'",
    ]  # fmt: skip
    document = Document("<k<y>in</k<y>out", 100)  # a name may hold a bracket, which nothing escapes
    assert [element.tag for element in document.elements[-2:]] == ["body", "k<y"]


def test_equal_elements_in_other_places_have_other_styles():
    styles = Styles([".off p { display: none } .off > b { display: none }"])

    def shown(html: str) -> list[str]:
        return [n.line for n in number(tree(Document(html, 100), State(), styles), 100)[0].values()][1:]

    for _ in range(2):
        assert shown("<div class=off><i><p>one</p></i><b>two</b><i><b>three</b></i></div><p>four</p><b>five</b>") == [
            "StaticText 'three'", "StaticText 'four'", "StaticText 'five'",
        ]  # fmt: skip


def test_a_site_remembers_no_more_places_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneiro_web.browsers.text.styles.MOST_KNOWN", 10)
    document, styles = Document("".join(f"<p class=c{n}>{n + 100}</p>" for n in range(50)), 100), Styles([])
    nodes, _ = number(tree(document, State(), styles), 100)
    assert len(nodes) == 51 and styles.places == 10


SNIPPETS = (
    "<p>One <button>two</button> <button> </button><button>&nbsp;</button> three</p>",
    "<a href=x>In <button>a <b>link</b></button> <span class=box>boxed</span>!</a> after",
    "<fieldset disabled><button>Off</button><legend><button>On</button></legend></fieldset>",
    "<p class=lines>a  b\n c</p><p class=kept>a  b\n c</p><div class=kept>x <a href=y>  z</a></div>",
    "<a>no link</a><ul><li>dot</li></ul><ul class=bare><li>none</li></ul><form class=box>x<button>y</button></form>z",
    "<h2 id=head>Named <button id=b>by</button></h2><section aria-labelledby='head b'>words</section>",
    "<h2>a<span>b</span>c</h2><a href=x>a<span>b</span>c</a>",
    "<div class=flex><button>a</button><span>b</span></div><span class=gone>c</span><td>d</td>",
)
SHEET = """.box { display: inline-flex } .kept { white-space: pre-wrap } .lines { white-space: pre-line }
.bare { list-style: none } .flex { display: flex } .flex .gone, .gone { visibility: hidden }
h2 span { display: block }"""


@pytest.mark.parametrize("html", SNIPPETS)
def test_the_short_way_for_frequent_elements_gives_the_tree_of_the_long_way(
    html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Document(f"<style>{SHEET}</style><main>{html}</main>", 1000)
    # Twice with the same styles: the second time by the plans of the first.
    styles = Styles(document.styles)
    short = [number(tree(document, State(), styles), 1000)[0].text for _ in range(2)]
    monkeypatch.setattr(Builder, "plain", lambda *_: False)
    long = number(tree(document, State(), styles), 1000)[0].text
    assert short == [long, long]
