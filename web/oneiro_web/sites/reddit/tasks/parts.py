"""What tasks on the forum share: forums and posts to ask about, and the ways to their pages."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.reddit.content import USER
from oneiro_web.templates.base import Content, Slots, quoted
from oneiro_web.templates.script import Script, View

ME = quoted(USER)


def some_forum(content: Content, rng: np.random.Generator, where: str = "1") -> str | None:
    """The name of a forum with posts."""
    row = content.pick(rng, f"SELECT name FROM forum WHERE submissions > 2 AND ({where}) ORDER BY name")
    return row["name"] if row else None


def some_post(content: Content, rng: np.random.Generator, where: str = "1") -> Slots | None:
    """A post without a link, found by its title alone: no other post has these words in its title or text."""
    row = content.pick(rng, f"SELECT id, title, forum FROM post p WHERE url = '' AND ({where}) ORDER BY id")
    if row is None:
        return None
    count = "SELECT count(*) FROM post WHERE instr(lower(title), lower(:words)) OR instr(lower(body), lower(:words))"
    if content.db.execute(count, {"words": row["title"]}).fetchone()[0] > 1:
        return None
    return {"title": row["title"], "post": row["id"], "forum": row["forum"]}


def open_forum(see: View, forum: str) -> Script:
    """From any page to a forum's."""
    yield see.click("link", "Forums")
    yield from see.turn_pages_to("link", forum)
    yield see.click("link", forum)


def open_post(see: View, title: str) -> Script:
    """From any page to a post's, by its title."""
    yield see.type("Search query", title, enter=True)
    yield see.click("link", title)
