"""Questions about forums and posts, and pages of them to show."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oneiro_web.sites.reddit.tasks.parts import Reddit, open_forum, open_post, some_forum, some_post
from oneiro_web.templates.base import Content, Question, Slots, one_of
from oneiro_web.templates.script import Script, View


class PostAuthor(Question, Reddit):
    name = "reddit/post-author"
    intents = (
        'Who submitted the post "{title}"? Give the user name.',
        'Give the user name of the author of the post "{title}".',
    )
    skills = ("search", "read")
    answer = ("text", "author")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        post = some_post(content, rng)
        return post and {**post, "author": content.value("SELECT author FROM post WHERE id = ?", post["post"])}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.type("Search query", slots["title"], enter=True)


class CommentCount(Question, Reddit):
    name = "reddit/comment-count"
    intents = (
        'How many comments does the post "{title}" in {forum} have?',
        'Count the comments on the post "{title}" in the forum {forum}.',
    )
    skills = ("search", "read", "count")
    answer = ("number", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        post = some_post(content, rng, "comments > 1")
        return post and {**post, "count": content.value("SELECT comments FROM post WHERE id = ?", post["post"])}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_post(see, slots["title"])


class TopPost(Question, Reddit):
    name = "reddit/top-post"
    intents = (
        "What is the title of the post with the highest score of all time in the forum {forum}?",
        "Give the title of the best rated post ever in {forum}.",
    )
    skills = ("sort", "compare", "read")
    answer = ("text", "title")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum = some_forum(content, rng)
        posts = content.rows("SELECT title, score FROM post WHERE forum = ? ORDER BY score DESC, id LIMIT 2", forum)
        if len(posts) < 2 or posts[0]["score"] == posts[1]["score"]:
            return None
        return {"forum": forum, "title": posts[0]["title"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("link", "Top")


class NewestAuthor(Question, Reddit):
    name = "reddit/newest-author"
    intents = (
        "Who wrote the newest post in the forum {forum}? Give the user name.",
        "Give the user name of whoever posted last in {forum}.",
    )
    skills = ("sort", "read")
    answer = ("text", "author")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum = some_forum(content, rng)
        posts = content.rows("SELECT author, created FROM post WHERE forum = ? ORDER BY created DESC LIMIT 2", forum)
        if len(posts) < 2 or posts[0]["created"] == posts[1]["created"]:
            return None
        return {"forum": forum, "author": posts[0]["author"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("link", "New")


class SubscriberCount(Question, Reddit):
    name = "reddit/subscriber-count"
    intents = ("How many subscribers does the forum {forum} have?", "Give the number of subscribers of {forum}.")
    skills = ("page", "read")
    answer = ("number", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum = some_forum(content, rng)
        return {"forum": forum, "count": content.value("SELECT subscribers FROM forum WHERE name = ?", forum)}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Forums")
        yield from see.turn_pages_to("link", slots["forum"])


class MostSubmissions(Question, Reddit):
    name = "reddit/most-submissions"
    intents = ("Which forum has the most submissions?", "Name the forum in which most has been posted.")
    skills = ("sort", "compare")
    start = "/create_forum"  # the front page names forums
    held_out = True
    answer = ("text", "forum")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        rows = content.rows("SELECT name, submissions FROM forum ORDER BY submissions DESC, name LIMIT 2")
        return None if rows[0]["submissions"] == rows[1]["submissions"] else {"forum": rows[0]["name"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Forums")
        yield see.click("link", "By submissions")


class ShowSorted(Reddit):
    name = "reddit/show-sorted"
    intents = (
        "Show the posts of the forum {forum}, {order} first.",
        "Open the forum {forum} so that the {order} posts come first.",
    )
    skills = ("page", "sort", "navigate")

    LINKS: ClassVar = {
        "newest": ("New", "new"),
        "best rated": ("Top", "top"),
        "most commented": ("Most commented", "most_commented"),
    }

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return {"forum": some_forum(content, rng), "order": one_of(rng, list(self.LINKS))}

    def url(self, slots: Slots) -> str:
        return f"/f/{slots['forum']}/{self.LINKS[slots['order']][1]}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("link", self.LINKS[slots["order"]][0])
        yield see.stop()


TEMPLATES = (PostAuthor, CommentCount, TopPost, NewestAuthor, SubscriberCount, MostSubmissions, ShowSorted)
