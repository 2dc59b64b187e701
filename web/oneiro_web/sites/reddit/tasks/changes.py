"""Tasks that change something on the forum."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.reddit.content import USER
from oneiro_web.sites.reddit.tasks.parts import ME, open_forum, open_post, some_forum, some_post
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.table import Change, Draw, by, choose, click, enter, refill, write

WORDS = load_words("reddit")["tasks"]
THEMES = {"Dark": "dark", "High contrast": "contrast"}

OWN = f"name IN (SELECT forum FROM subscription WHERE user = {ME})"
"""Forums that the user is subscribed to."""
SUBSCRIBED = f"SELECT count(*) FROM subscription WHERE user = {ME} AND forum = :forum"
SUBSCRIPTION = {"subscription": f"user = {ME} AND forum = :forum", "forum(subscribers)": "name = :forum"}

NEW_FORUM = f"user = {ME} AND forum = :forum"
NEW_POST = f"author = {ME} AND title = :title"
NEW_COMMENT = f"author = {ME} AND body = :text"
COMMENTED = f"SELECT post, parent FROM comment WHERE {NEW_COMMENT}"
COMMENT = {
    "comment": NEW_COMMENT,
    "vote": f"user = {ME} AND value = 1 AND kind = 'comment' "
    f"AND target IN (SELECT id FROM comment WHERE {NEW_COMMENT})",
    "post(comments)": "id = :post",
}
"""What a new comment changes."""
OWN_VOTE = f"user = {ME} AND kind = 'post' AND target = :post"


def forum(where: str) -> Draw:
    def draw(content: Content, rng: np.random.Generator) -> Slots | None:
        name = some_forum(content, rng, where)
        return {"forum": name} if name else None

    return draw


def new_post(content: Content, rng: np.random.Generator) -> Slots | None:
    title, body = one_of(rng, WORDS["posts"])
    return {"forum": some_forum(content, rng), "title": title, "body": body}


def post_and_text(content: Content, rng: np.random.Generator) -> Slots | None:
    post = some_post(content, rng)
    return post and {**post, "text": one_of(rng, WORDS["comments"])}


def comment_and_text(content: Content, rng: np.random.Generator) -> Slots | None:
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


def post_and_vote(content: Content, rng: np.random.Generator) -> Slots | None:
    """A post that the user has not voted on."""
    own = f"SELECT 1 FROM vote WHERE user = {ME} AND kind = 'post' AND target = p.id"
    post = some_post(content, rng, f"NOT EXISTS ({own})")
    return post and {**post, "vote": one_of(rng, ["Upvote", "Downvote"])}


def theme(content: Content, rng: np.random.Generator) -> Slots | None:
    name = one_of(rng, list(THEMES))
    now = content.value("SELECT theme FROM user WHERE name = ?", USER)
    return None if now == THEMES[name] else {"theme": name}


def new_forum(content: Content, rng: np.random.Generator) -> Slots | None:
    name, title, text = one_of(rng, WORDS["topics"])
    taken = content.value("SELECT count(*) FROM forum WHERE name = ? COLLATE NOCASE", name)
    return None if taken else {"forum": name, "title": title, "text": text}


def own_post(content: Content, rng: np.random.Generator) -> Slots | None:
    post = some_post(content, rng, f"author = {ME}")
    if post is None:
        return None
    rows = content.rows("SELECT id FROM comment WHERE post = ? ORDER BY id", post["post"])
    return {**post, "comments": [row["id"] for row in rows]}


TEMPLATES = (
    Change(
        "reddit/subscribe",
        "Subscribe to the forum {forum}.",
        "I want to follow the forum {forum}. Subscribe me to it.",
        skills="page form",
        draw=forum(f"NOT {OWN}"),
        way=[by(open_forum, "{forum}"), click("button", "Subscribe")],
        rows={SUBSCRIBED: (1,)},
        changes=SUBSCRIPTION,
    ),
    Change(
        "reddit/unsubscribe",
        "Unsubscribe from the forum {forum}.",
        "I no longer want to follow {forum}. Unsubscribe me.",
        skills="page form",
        draw=forum(OWN),
        way=[by(open_forum, "{forum}"), click("button", "Unsubscribe")],
        rows={SUBSCRIBED: (0,)},
        changes=SUBSCRIPTION,
    ),
    Change(
        "reddit/write-post",
        'Submit a post in the forum {forum} with the title "{title}" and the text "{body}".',
        'Post in {forum}: title "{title}", body "{body}".',
        skills="form write",
        draw=new_post,
        way=[
            click("link", "Submit"),
            write("Title", "{title}"),
            write("Body", "{body}"),
            choose("Forum", "{forum}"),
            click("button", "Create submission"),
        ],
        rows={f"SELECT forum, body, url FROM post WHERE {NEW_POST}": (":forum", ":body", "")},
        changes={
            "post": NEW_POST,
            "vote": f"user = {ME} AND value = 1 AND kind = 'post' AND target IN (SELECT id FROM post WHERE {NEW_POST})",
            "forum(submissions)": "name = :forum",
        },
    ),
    Change(
        "reddit/write-comment",
        'Write the comment "{text}" on the post "{title}" in {forum}.',
        'Comment on the post "{title}" in the forum {forum} with exactly these words: "{text}"',
        skills="search write",
        draw=post_and_text,
        way=[by(open_post, "{title}"), write("Comment", "{text}"), click("button", "Post comment")],
        rows={COMMENTED: (":post", None)},
        changes=COMMENT,
    ),
    Change(
        "reddit/reply",
        'Reply "{text}" to the comment of {author} on the post "{title}" in {forum}.',
        'On the post "{title}" in {forum}, answer {author}\'s comment with "{text}".',
        skills="search read write",
        draw=comment_and_text,
        way=[
            by(open_post, "{title}"),
            click("link", "Reply", within="{author}"),
            lambda see, slots: see.type(f"Reply to {slots['author']}", slots["text"]),
            click("button", "Post reply"),
        ],
        rows={COMMENTED: (":post", ":comment")},
        changes=COMMENT,
    ),
    Change(
        "reddit/vote",
        '{vote} the post "{title}" in {forum}.',
        'Find the post "{title}" in {forum} and {vote} it.',
        skills="search form",
        draw=post_and_vote,
        way=[enter("Search query", "{title}"), click("button", "{vote}", within="{title}")],
        rows={f"SELECT value FROM vote WHERE {OWN_VOTE}": (lambda slots: 1 if slots["vote"] == "Upvote" else -1,)},
        changes={"vote": OWN_VOTE, "post(upvotes, downvotes, score, hot)": "id = :post"},
    ),
    Change(
        "reddit/biography",
        'Change my biography to "{text}".',
        'Set the biography on my profile to "{text}".',
        skills="form edit account",
        draw=lambda content, rng: {"text": one_of(rng, WORDS["biographies"])},
        way=[
            click("link", USER),
            click("link", "Edit biography"),
            refill("Biography", "{text}"),
            click("button", "Save"),
        ],
        rows={f"SELECT bio FROM user WHERE name = {ME}": (":text",)},
        changes={"user(bio)": f"name = {ME}"},
    ),
    Change(
        "reddit/theme",
        "Switch my account to the {theme} theme.",
        "In my settings, choose the {theme} theme.",
        skills="form edit account",
        draw=theme,
        way=[click("link", "Settings"), choose("Theme", "{theme}"), click("button", "Save")],
        rows={f"SELECT theme FROM user WHERE name = {ME}": (lambda slots: THEMES[slots["theme"]],)},
        changes={"user(theme)": f"name = {ME}"},
    ),
    Change(
        "reddit/create-forum",
        'Create a forum named {forum} with the title "{title}" and the description "{text}".',
        'Open a new forum: name {forum}, title "{title}", description "{text}".',
        skills="form write create",
        held_out=True,
        draw=new_forum,
        way=[
            click("link", "Create forum"),
            write("Name", "{forum}"),
            write("Title", "{title}"),
            write("Description", "{text}"),
            click("button", "Create forum"),
        ],
        rows={"SELECT title, description, sidebar, tags FROM forum WHERE name = :forum": (":title", ":text", "", "")},
        changes={"forum": "name = :forum", "moderator": NEW_FORUM, "subscription": NEW_FORUM},
    ),
    Change(
        "reddit/delete-post",
        'Delete my post "{title}" in {forum}.',
        'Remove the post "{title}" that I wrote in {forum}.',
        skills="search delete account",
        held_out=True,
        draw=own_post,
        way=[by(open_post, "{title}"), click("button", "Delete post")],
        rows={"SELECT count(*) FROM post WHERE id = :post": (0,)},
        changes={
            "post": "id = :post",
            "comment": "post = :post",
            "vote": "kind = 'post' AND target = :post OR kind = 'comment' AND target IN (:comments)",
            "forum(submissions)": "name = :forum",
        },
    ),
)
