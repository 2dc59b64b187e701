"""Tasks that change something on the forum."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.reddit.content import USER
from oneiro_web.sites.reddit.tasks.parts import ME, Reddit, open_forum, open_post, some_forum, some_post
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of, quoted
from oneiro_web.templates.script import Script, View

WORDS = load_words("reddit")["tasks"]


class Subscription(Reddit):
    """A forum is subscribed to or no longer."""

    skills = ("page", "form")
    button: ClassVar[str]
    subscribed: ClassVar[int]
    """Whether the user is a subscriber at the end."""

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        own = f"name IN (SELECT forum FROM subscription WHERE user = {ME})"
        forum = some_forum(content, rng, f"NOT {own}" if self.subscribed else own)
        return {"forum": forum} if forum else None

    def checks(self, slots: Slots) -> list[Check]:
        where = f"user = {ME} AND forum = {quoted(slots['forum'])}"
        return [holds(self.site, f"SELECT count(*) FROM subscription WHERE {where}", (self.subscribed,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        forum = quoted(slots["forum"])
        return {"subscription": f"user = {ME} AND forum = {forum}", "forum": f"name = {forum}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("button", self.button)
        yield see.stop()


class Subscribe(Subscription):
    name = "reddit/subscribe"
    intents = ("Subscribe to the forum {forum}.", "I want to follow the forum {forum}. Subscribe me to it.")
    button = "Subscribe"
    subscribed = 1


class Unsubscribe(Subscription):
    name = "reddit/unsubscribe"
    intents = ("Unsubscribe from the forum {forum}.", "I no longer want to follow {forum}. Unsubscribe me.")
    button = "Unsubscribe"
    subscribed = 0


class WritePost(Reddit):
    name = "reddit/write-post"
    intents = (
        'Submit a post in the forum {forum} with the title "{title}" and the text "{body}".',
        'Post in {forum}: title "{title}", body "{body}".',
    )
    skills = ("form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        title, body = one_of(rng, WORDS["posts"])
        return {"forum": some_forum(content, rng), "title": title, "body": body}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT forum, body, url FROM post WHERE author = {ME} AND title = {quoted(slots['title'])}"
        return [holds(self.site, query, (slots["forum"], slots["body"], ""))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        mine = f"author = {ME} AND title = {quoted(slots['title'])}"
        return {
            "post": mine,
            "vote": f"user = {ME} AND kind = 'post' AND target IN (SELECT id FROM post WHERE {mine})",
            "forum": f"name = {quoted(slots['forum'])}",
        }

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Submit")
        yield see.type("Title", slots["title"])
        yield see.type("Body", slots["body"])
        yield see.select("Forum", slots["forum"])
        yield see.click("button", "Create submission")
        yield see.stop()


class WriteComment(Reddit):
    name = "reddit/write-comment"
    intents = (
        'Write the comment "{text}" on the post "{title}" in {forum}.',
        'Comment on the post "{title}" in the forum {forum} with exactly these words: "{text}"',
    )
    skills = ("search", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        post = some_post(content, rng)
        return post and {**post, "text": one_of(rng, WORDS["comments"])}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT post, parent FROM comment WHERE author = {ME} AND body = {quoted(slots['text'])}"
        return [holds(self.site, query, (slots["post"], None))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return written(slots)

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_post(see, slots["title"])
        yield see.type("Comment", slots["text"])
        yield see.click("button", "Post comment")
        yield see.stop()


def written(slots: Slots) -> dict[str, str | None]:
    """What a new comment changes."""
    mine = f"author = {ME} AND body = {quoted(slots['text'])}"
    return {
        "comment": mine,
        "vote": f"user = {ME} AND kind = 'comment' AND target IN (SELECT id FROM comment WHERE {mine})",
        "post": f"id = {slots['post']}",
    }


class ReplyTo(Reddit):
    name = "reddit/reply"
    intents = (
        'Reply "{text}" to the comment of {author} on the post "{title}" in {forum}.',
        'On the post "{title}" in {forum}, answer {author}\'s comment with "{text}".',
    )
    skills = ("search", "read", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        post = some_post(content, rng, "comments > 1")
        if post is None:
            return None
        row = content.pick(
            rng,
            f"SELECT id, author FROM comment c WHERE post = ? AND author != {ME} AND (SELECT count(*) FROM comment "
            "WHERE post = c.post AND author = c.author) = 1 AND author != (SELECT author FROM post WHERE id = c.post) "
            "ORDER BY id",
            post["post"],
        )
        if row is None:
            return None
        return {**post, "author": row["author"], "comment": row["id"], "text": one_of(rng, WORDS["comments"])}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT post, parent FROM comment WHERE author = {ME} AND body = {quoted(slots['text'])}"
        return [holds(self.site, query, (slots["post"], slots["comment"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return written(slots)

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_post(see, slots["title"])
        yield see.click("link", "Reply", within=slots["author"])
        yield see.type(f"Reply to {slots['author']}", slots["text"])
        yield see.click("button", "Post reply")
        yield see.stop()


class VotePost(Reddit):
    name = "reddit/vote"
    intents = ('{vote} the post "{title}" in {forum}.', 'Find the post "{title}" in {forum} and {vote} it.')
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        post = some_post(
            content, rng, f"NOT EXISTS (SELECT 1 FROM vote WHERE user = {ME} AND kind = 'post' AND target = p.id)"
        )
        return post and {**post, "vote": one_of(rng, ["Upvote", "Downvote"])}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT value FROM vote WHERE user = {ME} AND kind = 'post' AND target = {slots['post']}"
        return [holds(self.site, query, (1 if slots["vote"] == "Upvote" else -1,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        target = f"user = {ME} AND kind = 'post' AND target = {slots['post']}"
        return {"vote": target, "post": f"id = {slots['post']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.type("Search query", slots["title"], enter=True)
        yield see.click("button", slots["vote"], within=slots["title"])
        yield see.stop()


class Biography(Reddit):
    name = "reddit/biography"
    intents = ('Change my biography to "{text}".', 'Set the biography on my profile to "{text}".')
    skills = ("form", "edit", "account")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return {"text": one_of(rng, WORDS["biographies"])}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT bio FROM user WHERE name = {ME}", (slots["text"],))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"user": f"name = {ME}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", USER)
        yield see.click("link", "Edit biography")
        yield from see.fill("Biography", slots["text"])
        yield see.click("button", "Save")
        yield see.stop()


class Theme(Reddit):
    name = "reddit/theme"
    intents = ("Switch my account to the {theme} theme.", "In my settings, choose the {theme} theme.")
    skills = ("form", "edit", "account")

    THEMES: ClassVar = {"Dark": "dark", "High contrast": "contrast"}

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        theme = one_of(rng, list(self.THEMES))
        now = content.value("SELECT theme FROM user WHERE name = ?", USER)
        return None if now == self.THEMES[theme] else {"theme": theme}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT theme FROM user WHERE name = {ME}", (self.THEMES[slots["theme"]],))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"user": f"name = {ME}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Settings")
        yield see.select("Theme", slots["theme"])
        yield see.click("button", "Save")
        yield see.stop()


class CreateForum(Reddit):
    name = "reddit/create-forum"
    intents = (
        'Create a forum named {forum} with the title "{title}" and the description "{text}".',
        'Open a new forum: name {forum}, title "{title}", description "{text}".',
    )
    skills = ("form", "write", "create")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum, title, text = one_of(rng, WORDS["topics"])
        taken = content.value("SELECT count(*) FROM forum WHERE name = ? COLLATE NOCASE", forum)
        return None if taken else {"forum": forum, "title": title, "text": text}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT title, description FROM forum WHERE name = {quoted(slots['forum'])}"
        return [holds(self.site, query, (slots["title"], slots["text"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        new = f"forum = {quoted(slots['forum'])}"
        return {"forum": f"name = {quoted(slots['forum'])}", "moderator": new, "subscription": new}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Create forum")
        yield see.type("Name", slots["forum"])
        yield see.type("Title", slots["title"])
        yield see.type("Description", slots["text"])
        yield see.click("button", "Create forum")
        yield see.stop()


class DeletePost(Reddit):
    name = "reddit/delete-post"
    intents = ('Delete my post "{title}" in {forum}.', 'Remove the post "{title}" that I wrote in {forum}.')
    skills = ("search", "delete", "account")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_post(content, rng, f"author = {ME}")

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT count(*) FROM post WHERE id = {slots['post']}", (0,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        post = slots["post"]
        return {
            "post": f"id = {post}",
            "comment": f"post = {post}",
            "vote": f"kind = 'post' AND target = {post} OR kind = 'comment'",
            "forum": f"name = {quoted(slots['forum'])}",
        }

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_post(see, slots["title"])
        yield see.click("button", "Delete post")
        yield see.stop()


TEMPLATES = (
    Subscribe(),
    Unsubscribe(),
    WritePost(),
    WriteComment(),
    ReplyTo(),
    VotePost(),
    Biography(),
    Theme(),
    CreateForum(),
    DeletePost(),
)
