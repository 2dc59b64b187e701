"""What people change on the forum: posts, comments, votes, subscriptions, forums, their own settings."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.dice import slug
from oneiro_web.sites.lists import chosen, local
from oneiro_web.sites.reddit.content import heat

COMMENT_ORDERS = {"best": "score DESC, id", "new": "created DESC, id DESC", "old": "created, id"}
THEMES = [("light", "Light"), ("dark", "Dark"), ("contrast", "High contrast")]
MAX_TITLE_CHARS, MAX_BIO_CHARS = 200, 500
FORUM_NAME = re.compile(r"[A-Za-z0-9_]{3,25}")
E_MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
LINK = re.compile(r"https?://[^\s/]+\.[^\s]+")

Errors = dict[str, str]


def address(row: sqlite3.Row) -> str:
    """Where a post is."""
    return f"/f/{row['forum']}/{row['id']}/{row['slug']}"


def asked_post(visit: Visit) -> sqlite3.Row:
    """The post in the path."""
    sql = "SELECT * FROM post WHERE id = ? AND forum = ? COLLATE NOCASE"
    return visit.require(sql, visit.path["id"], visit.path["forum"])


def moderates(visit: Visit, forum: str) -> bool:
    """Whether the user looks after this forum."""
    return visit.one("SELECT 1 FROM moderator WHERE forum = ? AND user = ?", forum, visit.user) is not None


def show_post(visit: Visit, post: sqlite3.Row, status: int = 200, **form: Any) -> Response:
    """A post, its thread, and the forms to answer it or one of its comments."""
    order = chosen(visit, "order", tuple(COMMENT_ORDERS), "best")
    rows = visit.rows(f"SELECT * FROM comment WHERE post = ? ORDER BY {COMMENT_ORDERS[order]}", post["id"])
    replies: dict[int | None, list[sqlite3.Row]] = {}
    for row in rows:
        replies.setdefault(row["parent"], []).append(row)
    votes = visit.rows(
        "SELECT target, value FROM vote WHERE user = ? AND kind = 'comment' AND target IN "
        "(SELECT id FROM comment WHERE post = ?)", visit.user, post["id"],
    ) if visit.user else []  # fmt: skip
    values = {"reply": visit.number("reply", 0), "errors": {}, "text": "", **form}
    return visit.page(
        "reddit/post.html", status, post=post, replies=replies, order=order, orders=COMMENT_ORDERS,
        forum=visit.require("SELECT * FROM forum WHERE name = ?", post["forum"]),
        comment_votes={row["target"]: row["value"] for row in votes},
        vote=visit.value("SELECT value FROM vote WHERE user = ? AND kind = 'post' AND target = ?",
                         visit.user, post["id"]) or 0,
        moderates=moderates(visit, post["forum"]), **values,
    )  # fmt: skip


def submit_page(visit: Visit, form: dict[str, str], errors: Errors, status: int = 200) -> Response:
    names = [(row["name"], row["name"]) for row in visit.rows("SELECT name FROM forum ORDER BY name COLLATE NOCASE")]
    return visit.page("reddit/submit.html", status, form=form, errors=errors, forums=[("", "Choose a forum"), *names])


def show_submit(visit: Visit) -> Response:
    """The form for a new post."""
    form = {"forum": visit.path.get("forum", ""), "title": "", "url": "", "body": ""}
    return submit_page(visit, form, {})


def check_title(title: str) -> Errors:
    """What is wrong with a post's title."""
    if not title:
        return {"title": "A title is needed."}
    return {"title": f"At most {MAX_TITLE_CHARS} characters."} if len(title) > MAX_TITLE_CHARS else {}


def submit(visit: Visit) -> Response:
    """A new post."""
    form = {name: visit.form.get(name, "") for name in ("forum", "title", "url", "body")}
    errors = check_title(form["title"])
    forum = visit.one("SELECT name FROM forum WHERE name = ? COLLATE NOCASE", form["forum"])
    if forum is None:
        errors["forum"] = "Choose one of the forums."
    if form["url"] and not LINK.fullmatch(form["url"]):
        errors["url"] = "A link begins with http:// or https://."
    if errors or forum is None:
        return submit_page(visit, form, errors, 422)
    now = visit.now()
    sql = (
        "INSERT INTO post (forum, author, title, slug, body, url, created, upvotes, downvotes, score, comments, hot) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 1, 0, 1, 0, ?)"
    )
    made = slug(form["title"])
    number = visit.change(
        sql, forum["name"], visit.user, form["title"], made, form["body"], form["url"], now, heat(1, now)
    )
    visit.change("INSERT INTO vote VALUES (?, 'post', ?, 1)", visit.user, number)
    visit.change("UPDATE forum SET submissions = submissions + 1 WHERE name = ?", forum["name"])
    return visit.redirect(f"/f/{forum['name']}/{number}/{made}", "Your post is online.")


def comment(visit: Visit) -> Response:
    """A new comment on a post, or an answer to a comment of it."""
    post = asked_post(visit)
    body, parent = visit.form.get("body", ""), visit.form.get("parent", "")
    above = None
    if parent:
        if not (parent.isascii() and parent.isdigit() and len(parent) < 10):
            raise HTTPException(404)
        above = visit.require("SELECT id FROM comment WHERE id = ? AND post = ?", int(parent), post["id"])["id"]
    if not body:
        return show_post(visit, post, 422, reply=above or 0, errors={"body": "Write something first."})
    sql = (
        "INSERT INTO comment (post, parent, author, body, created, upvotes, downvotes, score) "
        "VALUES (?, ?, ?, ?, ?, 1, 0, 1)"
    )
    number = visit.change(sql, post["id"], above, visit.user, body, visit.now())
    visit.change("INSERT INTO vote VALUES (?, 'comment', ?, 1)", visit.user, number)
    visit.change("UPDATE post SET comments = comments + 1 WHERE id = ?", post["id"])
    return visit.redirect(address(post), "Your comment is online.")


def vote(visit: Visit) -> Response:
    """Up, down, or the vote taken back."""
    kind, number = visit.path["kind"], visit.path["id"]
    value = {"up": 1, "down": -1, "none": 0}.get(visit.form.get("choice", ""))
    if kind not in ("post", "comment") or value is None:
        raise HTTPException(404)
    row = visit.require(f"SELECT * FROM {kind} WHERE id = ?", number)
    sql = "SELECT value FROM vote WHERE user = ? AND kind = ? AND target = ?"
    before = visit.value(sql, visit.user, kind, number) or 0
    if value:
        visit.change("INSERT OR REPLACE INTO vote VALUES (?, ?, ?, ?)", visit.user, kind, number, value)
    else:
        visit.change("DELETE FROM vote WHERE user = ? AND kind = ? AND target = ?", visit.user, kind, number)
    up = row["upvotes"] + (value == 1) - (before == 1)
    down = row["downvotes"] + (value == -1) - (before == -1)
    visit.change(f"UPDATE {kind} SET upvotes = ?, downvotes = ?, score = ? WHERE id = ?", up, down, up - down, number)
    if kind == "post":
        visit.change("UPDATE post SET hot = ? WHERE id = ?", heat(up - down, row["created"]), number)
    return visit.redirect(local(visit.query.get("next", ""), "/"))


def subscribe(visit: Visit) -> Response:
    """Follow a forum."""
    return follow(visit, True)


def unsubscribe(visit: Visit) -> Response:
    """Follow a forum no more."""
    return follow(visit, False)


def follow(visit: Visit, wanted: bool) -> Response:
    name = visit.require("SELECT name FROM forum WHERE name = ? COLLATE NOCASE", visit.path["forum"])["name"]
    now = visit.one("SELECT 1 FROM subscription WHERE user = ? AND forum = ?", visit.user, name) is not None
    if wanted and not now:
        visit.change("INSERT INTO subscription VALUES (?, ?)", visit.user, name)
        visit.change("UPDATE forum SET subscribers = subscribers + 1 WHERE name = ?", name)
    if now and not wanted:
        visit.change("DELETE FROM subscription WHERE user = ? AND forum = ?", visit.user, name)
        visit.change("UPDATE forum SET subscribers = subscribers - 1 WHERE name = ?", name)
    note = f"You are now subscribed to {name}." if wanted else f"You are no longer subscribed to {name}."
    return visit.redirect(local(visit.query.get("next", ""), f"/f/{name}"), note)


FORUM_FIELDS = ("name", "title", "description", "sidebar", "tags")


def show_create_forum(visit: Visit) -> Response:
    """The form for a new forum."""
    return visit.page("reddit/forum_form.html", form=dict.fromkeys(FORUM_FIELDS, ""), errors={}, new=True)


def check_forum(form: dict[str, str]) -> Errors:
    """What is wrong with a forum's texts."""
    names = {"title": "A title", "description": "A description"}
    return {name: f"{text} is needed." for name, text in names.items() if not form[name]}


def create_forum(visit: Visit) -> Response:
    """A new forum, moderated and followed by who made it."""
    form = {name: visit.form.get(name, "") for name in FORUM_FIELDS}
    errors = check_forum(form)
    if not FORUM_NAME.fullmatch(form["name"]):
        errors["name"] = "3 to 25 letters, digits or underscores."
    elif visit.one("SELECT 1 FROM forum WHERE name = ? COLLATE NOCASE", form["name"]):
        errors["name"] = "A forum with this name exists."
    if errors:
        return visit.page("reddit/forum_form.html", 422, form=form, errors=errors, new=True)
    visit.change(
        "INSERT INTO forum (name, title, description, sidebar, tags, created, subscribers, submissions) "
        "VALUES (?, ?, ?, ?, ?, ?, 1, 0)",
        *form.values(), visit.now(),
    )  # fmt: skip
    visit.change("INSERT INTO moderator VALUES (?, ?)", form["name"], visit.user)
    visit.change("INSERT INTO subscription VALUES (?, ?)", visit.user, form["name"])
    return visit.redirect(f"/f/{form['name']}", "The forum is open.")


def own_forum(visit: Visit) -> sqlite3.Row:
    """The forum in the path, for its moderators only."""
    row = visit.require("SELECT * FROM forum WHERE name = ? COLLATE NOCASE", visit.path["forum"])
    if not moderates(visit, row["name"]):
        raise HTTPException(403)
    return row


def show_edit_forum(visit: Visit) -> Response:
    """The form for a forum's texts."""
    return visit.page("reddit/forum_form.html", form=dict(own_forum(visit)), errors={}, new=False)


def edit_forum(visit: Visit) -> Response:
    """New texts for a forum."""
    row = own_forum(visit)
    form = {**{name: visit.form.get(name, "") for name in FORUM_FIELDS}, "name": row["name"]}
    errors = check_forum(form)
    if errors:
        return visit.page("reddit/forum_form.html", 422, form=form, errors=errors, new=False)
    visit.change("UPDATE forum SET title = ?, description = ?, sidebar = ?, tags = ? WHERE name = ?",
                 form["title"], form["description"], form["sidebar"], form["tags"], row["name"])  # fmt: skip
    return visit.redirect(f"/f/{row['name']}", "The forum was changed.")


def own_post(visit: Visit) -> sqlite3.Row:
    """The post in the path, for its author only."""
    row = asked_post(visit)
    if row["author"] != visit.user:
        raise HTTPException(403)
    return row


def show_edit_post(visit: Visit) -> Response:
    """The form for a post's title and text."""
    row = own_post(visit)
    return visit.page("reddit/edit_post.html", post=row, form=dict(row), errors={})


def edit_post(visit: Visit) -> Response:
    """A new title and text for a post. Its address stays."""
    row = own_post(visit)
    form = {name: visit.form.get(name, "") for name in ("title", "body")}
    errors = check_title(form["title"])
    if errors:
        return visit.page("reddit/edit_post.html", 422, post=row, form=form, errors=errors)
    sql = "UPDATE post SET title = ?, body = ?, edited = ? WHERE id = ?"
    visit.change(sql, form["title"], form["body"], visit.now(), row["id"])
    return visit.redirect(address(row), "Your post was changed.")


def delete_post(visit: Visit) -> Response:
    """A post with its thread goes, by its author or a moderator."""
    row = asked_post(visit)
    if row["author"] != visit.user and not moderates(visit, row["forum"]):
        raise HTTPException(403)
    comments = "SELECT id FROM comment WHERE post = ?"
    visit.change(f"DELETE FROM vote WHERE kind = 'comment' AND target IN ({comments})", row["id"])
    visit.change("DELETE FROM vote WHERE kind = 'post' AND target = ?", row["id"])
    visit.change("DELETE FROM comment WHERE post = ?", row["id"])
    visit.change("DELETE FROM post WHERE id = ?", row["id"])
    visit.change("UPDATE forum SET submissions = submissions - 1 WHERE name = ?", row["forum"])
    return visit.redirect(f"/f/{row['forum']}", "The post was deleted.")


def asked_comment(visit: Visit) -> tuple[sqlite3.Row, sqlite3.Row]:
    """The comment in the path and its post."""
    row = visit.require("SELECT * FROM comment WHERE id = ?", visit.path["id"])
    return row, visit.require("SELECT * FROM post WHERE id = ?", row["post"])


def own_comment(visit: Visit) -> tuple[sqlite3.Row, sqlite3.Row]:
    """The same, for the comment's author only."""
    row, post = asked_comment(visit)
    if row["author"] != visit.user:
        raise HTTPException(403)
    return row, post


def show_edit_comment(visit: Visit) -> Response:
    """The form for a comment's text."""
    row, post = own_comment(visit)
    return visit.page("reddit/edit_comment.html", comment=row, post=post, text=row["body"], errors={})


def edit_comment(visit: Visit) -> Response:
    """A new text for a comment."""
    row, post = own_comment(visit)
    text = visit.form.get("body", "")
    if not text:
        errors = {"body": "Write something first."}
        return visit.page("reddit/edit_comment.html", 422, comment=row, post=post, text="", errors=errors)
    visit.change("UPDATE comment SET body = ?, edited = ? WHERE id = ?", text, visit.now(), row["id"])
    return visit.redirect(address(post), "Your comment was changed.")


def delete_comment(visit: Visit) -> Response:
    """A comment without answers goes, by its author or a moderator."""
    row, post = asked_comment(visit)
    if row["author"] != visit.user and not moderates(visit, post["forum"]):
        raise HTTPException(403)
    if visit.one("SELECT 1 FROM comment WHERE post = ? AND parent = ?", post["id"], row["id"]):
        return visit.redirect(address(post), "A comment with replies cannot be deleted.")
    visit.change("DELETE FROM vote WHERE kind = 'comment' AND target = ?", row["id"])
    visit.change("DELETE FROM comment WHERE id = ?", row["id"])
    visit.change("UPDATE post SET comments = comments - 1 WHERE id = ?", post["id"])
    return visit.redirect(address(post), "The comment was deleted.")


def own_account(visit: Visit) -> sqlite3.Row:
    """The account in the path, for its owner only."""
    row = visit.require("SELECT * FROM user WHERE name = ? COLLATE NOCASE", visit.path["name"])
    if row["name"] != visit.user:
        raise HTTPException(403)
    return row


def show_biography(visit: Visit) -> Response:
    """The form for the own biography."""
    row = own_account(visit)
    return visit.page("reddit/biography.html", person=row, bio=row["bio"], errors={})


def edit_biography(visit: Visit) -> Response:
    """A new biography."""
    row = own_account(visit)
    bio = visit.form.get("bio", "")
    if len(bio) > MAX_BIO_CHARS:
        errors = {"bio": f"At most {MAX_BIO_CHARS} characters."}
        return visit.page("reddit/biography.html", 422, person=row, bio=bio, errors=errors)
    visit.change("UPDATE user SET bio = ? WHERE name = ?", bio, row["name"])
    return visit.redirect(f"/user/{row['name']}", "Your biography was changed.")


def show_preferences(visit: Visit) -> Response:
    """The form for e-mail and theme."""
    row = own_account(visit)
    return visit.page("reddit/preferences.html", person=row, form=dict(row), themes=THEMES, errors={})


def edit_preferences(visit: Visit) -> Response:
    """A new e-mail address and theme."""
    row = own_account(visit)
    form = {name: visit.form.get(name, "") for name in ("email", "theme")}
    errors: Errors = {}
    if not E_MAIL.fullmatch(form["email"]):
        errors["email"] = "This is no e-mail address."
    if form["theme"] not in dict(THEMES):
        errors["theme"] = "Choose one of the themes."
    if errors:
        return visit.page("reddit/preferences.html", 422, person=row, form=form, themes=THEMES, errors=errors)
    visit.change("UPDATE user SET email = ?, theme = ? WHERE name = ?", form["email"], form["theme"], row["name"])
    return visit.redirect(f"/user/{row['name']}/preferences", "Your settings were saved.")
