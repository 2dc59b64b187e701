"""Tasks on the forum."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oneiro.worlds.web.sites.forum_content import USER
from oneiro.worlds.web.tasks import Check
from oneiro.worlds.web.templates.base import Content, Slots, Template, holds, quoted, says
from oneiro.worlds.web.templates.script import Script, View
from oneiro.worlds.web.templates.words import BIOGRAPHIES, COMMENTS, POSTS, TOPICS, one_of

ME = quoted(USER)


def open_forum(see: View, forum: str) -> Script:
    """From any page to a forum's."""
    yield see.click("link", "Forums")
    yield from see.turn_pages_to("link", forum)
    yield see.click("link", forum)


def open_post(see: View, title: str) -> Script:
    """From any page to a post's, by its title."""
    yield see.type("Search query", title, enter=True)
    yield see.click("link", title)


def some_forum(content: Content, rng: np.random.Generator, where: str = "1") -> str | None:
    """The name of a forum with posts."""
    row = content.pick(rng, f"SELECT name FROM forum WHERE submissions > 2 AND ({where}) ORDER BY name")
    return row["name"] if row else None


def some_post(content: Content, rng: np.random.Generator, where: str = "1") -> Slots | None:
    """A post without a link, found by its title alone: no other post has these words in its title or text."""
    row = content.pick(rng, f"SELECT id, title, forum FROM post p WHERE url = '' AND ({where}) ORDER BY id")
    if row is None:
        return None
    found = "SELECT count(*) FROM post WHERE instr(lower(title), lower(:words)) OR instr(lower(body), lower(:words))"
    if content.db.execute(found, {"words": row["title"]}).fetchone()[0] > 1:
        return None
    return {"title": row["title"], "post": row["id"], "forum": row["forum"]}


class _Reddit(Template):
    site = "reddit"


class PostAuthor(_Reddit):
    name = "reddit/post-author"
    intents = (
        'Who submitted the post "{title}"? Give the user name.',
        'Give the user name of the author of the post "{title}".',
    )
    skills = ("search", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        post = some_post(content, rng)
        return post and {**post, "author": content.value("SELECT author FROM post WHERE id = ?", post["post"])}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["author"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield see.type("Search query", slots["title"], enter=True)
        yield see.stop(slots["author"])


class CommentCount(_Reddit):
    name = "reddit/comment-count"
    intents = (
        'How many comments does the post "{title}" in {forum} have?',
        'Count the comments on the post "{title}" in the forum {forum}.',
    )
    skills = ("search", "read", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        post = some_post(content, rng, "comments > 1")
        return post and {**post, "count": content.value("SELECT comments FROM post WHERE id = ?", post["post"])}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("number", slots["count"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_post(see, slots["title"])
        yield see.stop(str(slots["count"]))


class TopPost(_Reddit):
    name = "reddit/top-post"
    intents = (
        "What is the title of the post with the highest score of all time in the forum {forum}?",
        "Give the title of the best rated post ever in {forum}.",
    )
    skills = ("sort", "compare", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum = some_forum(content, rng)
        posts = content.rows("SELECT title, score FROM post WHERE forum = ? ORDER BY score DESC, id LIMIT 2", forum)
        if len(posts) < 2 or posts[0]["score"] == posts[1]["score"]:
            return None
        return {"forum": forum, "title": posts[0]["title"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["title"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("link", "Top")
        yield see.stop(slots["title"])


class NewestAuthor(_Reddit):
    name = "reddit/newest-author"
    intents = (
        "Who wrote the newest post in the forum {forum}? Give the user name.",
        "Give the user name of whoever posted last in {forum}.",
    )
    skills = ("sort", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum = some_forum(content, rng)
        posts = content.rows("SELECT author, created FROM post WHERE forum = ? ORDER BY created DESC LIMIT 2", forum)
        if len(posts) < 2 or posts[0]["created"] == posts[1]["created"]:
            return None
        return {"forum": forum, "author": posts[0]["author"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["author"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("link", "New")
        yield see.stop(slots["author"])


class SubscriberCount(_Reddit):
    name = "reddit/subscriber-count"
    intents = ("How many subscribers does the forum {forum} have?", "Give the number of subscribers of {forum}.")
    skills = ("page", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum = some_forum(content, rng)
        return {"forum": forum, "count": content.value("SELECT subscribers FROM forum WHERE name = ?", forum)}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("number", slots["count"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Forums")
        yield from see.turn_pages_to("link", slots["forum"])
        yield see.stop(str(slots["count"]))


class MostSubmissions(_Reddit):
    name = "reddit/most-submissions"
    intents = ("Which forum has the most submissions?", "Name the forum in which most has been posted.")
    skills = ("sort", "compare")
    start = "/create_forum"  # the front page names forums
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        rows = content.rows("SELECT name, submissions FROM forum ORDER BY submissions DESC, name LIMIT 2")
        return None if rows[0]["submissions"] == rows[1]["submissions"] else {"forum": rows[0]["name"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["forum"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Forums")
        yield see.click("link", "By submissions")
        yield see.stop(slots["forum"])


class ShowSorted(_Reddit):
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

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        return f"/f/{slots['forum']}/{self.LINKS[slots['order']][1]}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("link", self.LINKS[slots["order"]][0])
        yield see.stop()


class Subscribe(_Reddit):
    name = "reddit/subscribe"
    intents = ("Subscribe to the forum {forum}.", "I want to follow the forum {forum}. Subscribe me to it.")
    skills = ("page", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum = some_forum(content, rng, f"name NOT IN (SELECT forum FROM subscription WHERE user = {ME})")
        return {"forum": forum} if forum else None

    def checks(self, slots: Slots) -> list[Check]:
        where = f"user = {ME} AND forum = {quoted(slots['forum'])}"
        return [holds(self.site, f"SELECT count(*) FROM subscription WHERE {where}", (1,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        forum = quoted(slots["forum"])
        return {"subscription": f"user = {ME} AND forum = {forum}", "forum": f"name = {forum}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("button", "Subscribe")
        yield see.stop()


class Unsubscribe(_Reddit):
    name = "reddit/unsubscribe"
    intents = ("Unsubscribe from the forum {forum}.", "I no longer want to follow {forum}. Unsubscribe me.")
    skills = ("page", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum = some_forum(content, rng, f"name IN (SELECT forum FROM subscription WHERE user = {ME})")
        return {"forum": forum} if forum else None

    def checks(self, slots: Slots) -> list[Check]:
        where = f"user = {ME} AND forum = {quoted(slots['forum'])}"
        return [holds(self.site, f"SELECT count(*) FROM subscription WHERE {where}", (0,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        forum = quoted(slots["forum"])
        return {"subscription": f"user = {ME} AND forum = {forum}", "forum": f"name = {forum}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_forum(see, slots["forum"])
        yield see.click("button", "Unsubscribe")
        yield see.stop()


class WritePost(_Reddit):
    name = "reddit/write-post"
    intents = (
        'Submit a post in the forum {forum} with the title "{title}" and the text "{body}".',
        'Post in {forum}: title "{title}", body "{body}".',
    )
    skills = ("form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        title, body = one_of(rng, POSTS)
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


class WriteComment(_Reddit):
    name = "reddit/write-comment"
    intents = (
        'Write the comment "{text}" on the post "{title}" in {forum}.',
        'Comment on the post "{title}" in the forum {forum} with exactly these words: "{text}"',
    )
    skills = ("search", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        post = some_post(content, rng)
        return post and {**post, "text": one_of(rng, COMMENTS)}

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


class ReplyTo(_Reddit):
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
        return {**post, "author": row["author"], "comment": row["id"], "text": one_of(rng, COMMENTS)}

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


class VotePost(_Reddit):
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


class Biography(_Reddit):
    name = "reddit/biography"
    intents = ('Change my biography to "{text}".', 'Set the biography on my profile to "{text}".')
    skills = ("form", "edit", "account")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return {"text": one_of(rng, BIOGRAPHIES)}

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


class Theme(_Reddit):
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


class CreateForum(_Reddit):
    name = "reddit/create-forum"
    intents = (
        'Create a forum named {forum} with the title "{title}" and the description "{text}".',
        'Open a new forum: name {forum}, title "{title}", description "{text}".',
    )
    skills = ("form", "write", "create")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        forum, title, text = one_of(rng, TOPICS)
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


class DeletePost(_Reddit):
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
    PostAuthor, CommentCount, TopPost, NewestAuthor, SubscriberCount, MostSubmissions, ShowSorted, Subscribe,
    Unsubscribe, WritePost, WriteComment, ReplyTo, VotePost, Biography, Theme, CreateForum, DeletePost,
)  # fmt: skip
