"""Questions about forums and posts, and pages of them to show."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.reddit.tasks.parts import open_forum, open_post, some_forum, some_post
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Question, ShowPage, add, by, click, enter

ORDERS = {
    "newest": ("New", "new"),
    "best rated": ("Top", "top"),
    "most commented": ("Most commented", "most_commented"),
}


def forum(content: Content, rng: np.random.Generator) -> Slots | None:
    return {"forum": some_forum(content, rng)}


PLACES = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def ranked_forums(content: Content, rng: np.random.Generator) -> Slots | None:
    """Two forums by their places, where their neighbours have other numbers."""
    rows = content.rows("SELECT name, submissions FROM forum ORDER BY submissions DESC, name LIMIT ?", len(PLACES) + 2)
    first, second = sorted(rng.choice(len(PLACES), 2, replace=False) + 1)
    for place in (first, second):
        if len(rows) < place + 2 or len({row["submissions"] for row in rows[place - 1 : place + 2]}) < 3:
            return None
    names = [rows[first]["name"], rows[second]["name"]]
    return {"place": PLACES[first - 1], "other": PLACES[second - 1], "forums": names}


def counted_post(content: Content, rng: np.random.Generator) -> Slots | None:
    """A post with its comments, any number as likely as another: most posts have few."""
    row = content.pick(rng, "SELECT DISTINCT comments AS count FROM post WHERE comments > 1 ORDER BY comments")
    post = some_post(content, rng, f"comments = {row['count']}") if row else None
    return {**post, "count": row["count"]} if row and post else None


def turn_to_forum(see: View, name: str) -> Script:
    yield see.click("link", "Forums")
    yield from see.turn_pages_to("link", name)


TEMPLATES = (
    Question(
        "reddit/post-author",
        'Who submitted the post "{title}"? Give the user name.',
        'Give the user name of the author of the post "{title}".',
        skills="search read",
        draw=add(some_post, "SELECT author FROM post WHERE id = :post"),
        way=[enter("Search query", "{title}")],
        answer="text author",
    ),
    Question(
        "reddit/comment-count",
        'How many comments does the post "{title}" in {forum} have?',
        'Count the comments on the post "{title}" in the forum {forum}.',
        skills="search read count",
        draw=counted_post,
        way=[by(open_post, "{title}")],
        answer="number count",
    ),
    Question(
        "reddit/top-post",
        "What is the title of the post with the highest score of all time in the forum {forum}?",
        "Give the title of the best rated post ever in {forum}.",
        skills="sort compare read",
        draw=add(forum, "SELECT title, score AS rank FROM post WHERE forum = :forum ORDER BY score DESC, id"),
        way=[by(open_forum, "{forum}"), click("link", "Top")],
        answer="text title",
    ),
    Question(
        "reddit/newest-author",
        "Who wrote the newest post in the forum {forum}? Give the user name.",
        "Give the user name of whoever posted last in {forum}.",
        skills="sort read",
        draw=add(forum, "SELECT author, created AS rank FROM post WHERE forum = :forum ORDER BY created DESC"),
        way=[by(open_forum, "{forum}"), click("link", "New")],
        answer="text author",
    ),
    Question(
        "reddit/subscriber-count",
        "How many subscribers does the forum {forum} have?",
        "Give the number of subscribers of {forum}.",
        skills="page read",
        draw=add(forum, "SELECT subscribers AS count FROM forum WHERE name = :forum"),
        way=[by(turn_to_forum, "{forum}")],
        answer="number count",
    ),
    Question(
        "reddit/most-submissions",
        "Which forum has the {place} most submissions, and which one the {other} most?",
        "Sorted by submissions, the largest first: which forums come {place} and {other}?",
        skills="sort compare",
        start="/create_forum",  # the front page names forums
        held_out=True,
        draw=ranked_forums,
        way=[click("link", "Forums"), click("link", "By submissions")],
        answer="names forums",
    ),
    ShowPage(
        "reddit/show-sorted",
        "Show the posts of the forum {forum}, {order} first.",
        "Open the forum {forum} so that the {order} posts come first.",
        skills="page sort navigate",
        draw=lambda content, rng: {"forum": some_forum(content, rng), "order": one_of(rng, list(ORDERS))},
        way=[by(open_forum, "{forum}"), lambda see, slots: see.click("link", ORDERS[slots["order"]][0])],
        page=lambda slots: f"/f/{slots['forum']}/{ORDERS[slots['order']][1]}",
    ),
)
