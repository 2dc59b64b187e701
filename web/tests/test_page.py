from __future__ import annotations

from oneiro_web.page import MAX_PAGE_CHARS, Node, Page, is_printed, number


def make(*children: Node) -> Node:
    return Node("RootWebArea", "Shop", {"focused": True}, list(children))


def lines(root: Node, most: int = 100) -> list[str]:
    nodes, _ = number(root, most)
    return ["\t" * node.depth + str(node) for node in nodes.values()]


def test_blank_nodes_are_skipped_and_add_no_depth():
    item = Node("listitem", "", {"level": 1}, [Node("link", "Go")])
    root = make(Node("generic", "", {}, [Node("list", " ", {}, [item])]), Node("main", "", {}, [Node("image", "")]))
    assert lines(root) == [
        "[1] RootWebArea 'Shop' focused: True",
        "\t[2] link 'Go'",
        "\t[3] main ''",
        "\t\t[4] image ''",
    ]


def test_a_text_in_one_of_the_three_lines_before_is_dropped():
    root = make(
        Node("link", "Red shoes", {}, [Node("StaticText", "shoes")]),
        Node("button", "b1"), Node("button", "b2"), Node("button", "b3"), Node("StaticText", "shoes"),
        Node("StaticText", " "),
    )  # fmt: skip
    assert lines(root)[1:] == [
        "\t[2] link 'Red shoes'", "\t[3] button 'b1'", "\t[4] button 'b2'", "\t[5] button 'b3'",
        "\t[6] StaticText 'shoes'",
    ]  # fmt: skip


def test_ids_do_not_hide_numbers():
    assert lines(make(Node("button", "go"), Node("StaticText", "2")))[-1] == "\t[3] StaticText '2'"


def test_names_are_quoted_as_python_does():
    root = make(
        Node("link", "it's"), Node("link", "a\nb \ue60c"), Node("textbox", "", {"required": False, "valuetext": ""})
    )
    assert lines(root)[1:] == [
        "\t[2] link \"it's\"", "\t[3] link 'a\\nb \\ue60c'", "\t[4] textbox '' required: False valuetext: ",
    ]  # fmt: skip


def test_pages_are_bounded():
    nodes, cut = number(make(*[Node("button", f"b{index}") for index in range(50)]), 10)
    assert (len(nodes), cut) == (10, True)
    nodes, cut = number(make(*[Node("button", f"{index:09}" + "x" * 5000) for index in range(500)]), 1000)
    assert cut and sum(len(node.line) for node in nodes.values()) <= MAX_PAGE_CHARS


def test_the_header_names_all_tabs():
    root = make(Node("link", "A"))
    nodes, _ = number(root, 10)
    page = Page("http://x/", "Shop", root, nodes, ("Shop", "Forum"), 1)
    assert page.text() == "Tab 0: Shop | Tab 1 (current): Forum\n\n[1] RootWebArea 'Shop' focused: True\n\t[2] link 'A'"
    assert page.lines() == ["[1] RootWebArea 'Shop' focused: True", "[2] link 'A'"]


def test_what_has_a_name_is_printed_and_silent_roles_need_more_than_a_role() -> None:
    assert is_printed("generic", "words", {}) is True
    assert not is_printed("generic", " ", {}) and not is_printed("listitem", "", {"focused": True})
    assert is_printed("generic", "", {"focused": True}) and is_printed("link", "", {})
