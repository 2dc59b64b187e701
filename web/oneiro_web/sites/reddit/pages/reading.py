"""The forum: forums, posts, threads of comments, people. What is read is here, what is written in `changes`."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from oneiro_web.sites.base import TODAY, Visit
from oneiro_web.sites.dice import stamp
from oneiro_web.sites.lists import chosen, paged
from oneiro_web.sites.reddit.pages import changes

POSTS_A_PAGE, FORUMS_A_PAGE, COMMENTS_A_PAGE = 15, 15, 20

SORTS = {
    "hot": ("Hot", "hot DESC"),
    "new": ("New", "created DESC"),
    "top": ("Top", "score DESC"),
    "most_commented": ("Most commented", "comments DESC"),
}
PERIODS = {"all": ("All time", 0), "year": ("Past year", 365), "month": ("Past month", 30), "week": ("Past week", 7)}
FORUM_ORDERS = {
    "by_name": ("By name", "name COLLATE NOCASE"),
    "by_subscribers": ("By subscribers", "subscribers DESC, name"),
    "by_submissions": ("By submissions", "submissions DESC, name"),
}


def listing(visit: Visit, where: str, values: tuple[Any, ...], sort: str) -> dict[str, Any]:
    """One page of posts for a template, with the user's own votes."""
    period = chosen(visit, "t", tuple(PERIODS), "all") if sort == "top" else "all"
    if period != "all":
        where, values = f"{where} AND created >= ?", (*values, stamp(TODAY - timedelta(days=PERIODS[period][1])))
    part = paged(visit, visit.value(f"SELECT count(*) FROM post WHERE {where}", *values), POSTS_A_PAGE)
    order = f"ORDER BY {SORTS[sort][1]}, id DESC LIMIT ? OFFSET ?"
    posts = visit.rows(f"SELECT * FROM post WHERE {where} {order}", *values, part.size, part.offset)
    return {"posts": posts, "part": part, "sort": sort, "period": period, "votes": own_votes(visit, "post", posts),
            "sorts": SORTS, "periods": PERIODS}  # fmt: skip


def own_votes(visit: Visit, kind: str, rows: list[sqlite3.Row]) -> dict[int, int]:
    """How the user voted on these posts or comments."""
    if not visit.user or not rows:
        return {}
    marks = ", ".join("?" * len(rows))
    sql = f"SELECT target, value FROM vote WHERE user = ? AND kind = ? AND target IN ({marks})"
    return dict(tuple(row) for row in visit.rows(sql, visit.user, kind, *(row["id"] for row in rows)))


def asked_sort(visit: Visit) -> str:
    """The order in the path; an unknown one is no page."""
    sort: str = visit.path.get("sort", "hot")
    if sort not in SORTS:
        raise HTTPException(404)
    return sort


def front(visit: Visit) -> Response:
    """Posts of all forums."""
    popular = visit.rows("SELECT name FROM forum ORDER BY subscribers DESC, name LIMIT 8")
    return visit.page("reddit/front.html", popular=popular, base="", **listing(visit, "1", (), asked_sort(visit)))


def subscribed(visit: Visit) -> Response:
    """Posts of the forums the user follows."""
    names = visit.rows("SELECT forum AS name FROM subscription WHERE user = ? ORDER BY forum", visit.user)
    where = "forum IN (SELECT forum FROM subscription WHERE user = ?)"
    values = listing(visit, where, (visit.user,), asked_sort(visit))
    return visit.page("reddit/front.html", popular=names, base="/subscribed", **values)


def forum(visit: Visit) -> Response:
    """One forum's posts."""
    row = visit.require("SELECT * FROM forum WHERE name = ? COLLATE NOCASE", visit.path["forum"])
    values = listing(visit, "forum = ?", (row["name"],), asked_sort(visit))
    return visit.page("reddit/forum.html", forum=row, **about(visit, row["name"]), **values)


def about(visit: Visit, name: str) -> dict[str, Any]:
    """Who moderates a forum, and whether the user follows and moderates it."""
    moderators = [row["user"] for row in visit.rows("SELECT user FROM moderator WHERE forum = ? ORDER BY user", name)]
    follows = visit.one("SELECT 1 FROM subscription WHERE user = ? AND forum = ?", visit.user, name) is not None
    return {"moderators": moderators, "follows": follows, "moderates": visit.user in moderators}


def forums(visit: Visit) -> Response:
    """All forums."""
    order = visit.path.get("order", "by_name")
    if order not in FORUM_ORDERS:
        raise HTTPException(404)
    part = paged(visit, visit.value("SELECT count(*) FROM forum"), FORUMS_A_PAGE)
    sql = f"SELECT * FROM forum ORDER BY {FORUM_ORDERS[order][1]} LIMIT ? OFFSET ?"
    followed = {row["forum"] for row in visit.rows("SELECT forum FROM subscription WHERE user = ?", visit.user)}
    return visit.page("reddit/forums.html", forums=visit.rows(sql, part.size, part.offset), part=part, order=order,
                      orders=FORUM_ORDERS, followed=followed)  # fmt: skip


def post(visit: Visit) -> Response:
    """A post with its thread."""
    return changes.show_post(visit, changes.asked_post(visit))


def user(visit: Visit) -> Response:
    """What a person wrote last."""
    row = visit.require("SELECT * FROM user WHERE name = ? COLLATE NOCASE", visit.path["name"])
    posts = visit.rows("SELECT * FROM post WHERE author = ? ORDER BY created DESC, id DESC LIMIT 5", row["name"])
    return visit.page("reddit/user.html", person=row, posts=posts, votes=own_votes(visit, "post", posts),
                      **comments_of(visit, row["name"], 5), counts=counts(visit, row["name"]))  # fmt: skip


def counts(visit: Visit, name: str) -> tuple[int, int]:
    """How many posts and comments a person wrote."""
    return (visit.value("SELECT count(*) FROM post WHERE author = ?", name),
            visit.value("SELECT count(*) FROM comment WHERE author = ?", name))  # fmt: skip


def comments_of(visit: Visit, name: str, size: int, offset: int = 0) -> dict[str, Any]:
    """Comments of a person with the posts they are on."""
    sql = (
        "SELECT comment.*, post.title, post.slug, post.forum FROM comment JOIN post ON post.id = comment.post "
        "WHERE comment.author = ? ORDER BY comment.created DESC, comment.id DESC LIMIT ? OFFSET ?"
    )
    rows = visit.rows(sql, name, size, offset)
    return {"comments": rows, "comment_votes": own_votes(visit, "comment", rows)}


def user_submissions(visit: Visit) -> Response:
    """All posts of a person."""
    row = visit.require("SELECT * FROM user WHERE name = ? COLLATE NOCASE", visit.path["name"])
    values = listing(visit, "author = ?", (row["name"],), "new")
    return visit.page("reddit/user_posts.html", person=row, counts=counts(visit, row["name"]), **values)


def user_comments(visit: Visit) -> Response:
    """All comments of a person."""
    row = visit.require("SELECT * FROM user WHERE name = ? COLLATE NOCASE", visit.path["name"])
    numbers = counts(visit, row["name"])
    part = paged(visit, numbers[1], COMMENTS_A_PAGE)
    values = comments_of(visit, row["name"], part.size, part.offset)
    return visit.page("reddit/user_comments.html", person=row, counts=numbers, part=part, **values)


def search(visit: Visit) -> Response:
    """Posts whose title or text has the words, newest first; forums by name."""
    words = visit.query.get("q", "").strip()[:100]
    where = "instr(lower(title), lower(?)) OR instr(lower(body), lower(?))" if words else "0 AND ? AND ?"
    values = listing(visit, f"({where})", (words, words), "new")
    named = "SELECT * FROM forum WHERE instr(lower(name || ' ' || title), lower(?)) ORDER BY name LIMIT 5"
    return visit.page("reddit/search.html", words=words, forums=visit.rows(named, words) if words else [], **values)
