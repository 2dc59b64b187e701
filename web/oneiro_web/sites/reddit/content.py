"""The forum's database and its content: forums, posts, threaded comments, people, votes."""

from __future__ import annotations

import math
import sqlite3
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from oneiro_web.sites.base import TODAY, Store, insert
from oneiro_web.sites.dice import Dice, distinct, load_words, slug, stamp

USER = "MorningCourier"
PASSWORD = "lantern-2026"
FORUMS, POSTS, COMMENT_COUNT, USERS = 20, 400, 2000, 80

Row = dict[str, Any]

WORDS = load_words("reddit")

SCHEMA = """
CREATE TABLE user (
  name TEXT PRIMARY KEY, password TEXT NOT NULL, email TEXT NOT NULL, bio TEXT NOT NULL, theme TEXT NOT NULL,
  joined TEXT NOT NULL);
CREATE TABLE forum (
  name TEXT PRIMARY KEY, title TEXT NOT NULL, description TEXT NOT NULL, sidebar TEXT NOT NULL, tags TEXT NOT NULL,
  created TEXT NOT NULL, subscribers INTEGER NOT NULL, submissions INTEGER NOT NULL);
CREATE TABLE moderator (forum TEXT NOT NULL, user TEXT NOT NULL, PRIMARY KEY (forum, user));
CREATE TABLE subscription (user TEXT NOT NULL, forum TEXT NOT NULL, PRIMARY KEY (user, forum));
CREATE TABLE post (
  id INTEGER PRIMARY KEY AUTOINCREMENT, forum TEXT NOT NULL, author TEXT NOT NULL, title TEXT NOT NULL,
  slug TEXT NOT NULL, body TEXT NOT NULL, url TEXT NOT NULL, created TEXT NOT NULL, edited TEXT NOT NULL DEFAULT '',
  upvotes INTEGER NOT NULL, downvotes INTEGER NOT NULL, score INTEGER NOT NULL, comments INTEGER NOT NULL,
  hot REAL NOT NULL);
CREATE INDEX post_forum ON post (forum);
CREATE INDEX post_author ON post (author);
CREATE INDEX post_created ON post (created);
CREATE INDEX post_hot ON post (hot);
CREATE INDEX post_score ON post (score);
CREATE INDEX post_comments ON post (comments);
CREATE TABLE comment (
  id INTEGER PRIMARY KEY AUTOINCREMENT, post INTEGER NOT NULL, parent INTEGER, author TEXT NOT NULL,
  body TEXT NOT NULL, created TEXT NOT NULL, edited TEXT NOT NULL DEFAULT '', upvotes INTEGER NOT NULL,
  downvotes INTEGER NOT NULL, score INTEGER NOT NULL);
CREATE INDEX comment_post ON comment (post);
CREATE INDEX comment_author ON comment (author);
CREATE TABLE vote (
  user TEXT NOT NULL, kind TEXT NOT NULL, target INTEGER NOT NULL, value INTEGER NOT NULL,
  PRIMARY KEY (user, kind, target));
"""


def heat(score: int, created: str) -> float:
    """How far up a post stands among the hot ones: votes count by their logarithm, twelve hours count as one."""
    hours = (datetime.fromisoformat(created) - TODAY).total_seconds() / 3600
    return round(math.copysign(math.log10(max(abs(score), 1)), score) + hours / 12.5, 6)


def fill(db: sqlite3.Connection, seed: int) -> None:
    """Write the content of a seed."""
    dice = Dice("web", "forum", seed)
    topics = sorted(dice.sample(WORDS["topics"], FORUMS), key=lambda topic: topic["name"])
    names = people(db, dice, topics)
    # Which forums people like differs between seeds; by their names, the first would always be the largest.
    popular = Dice("web", "forum", seed, "popular").sample(topics, FORUMS)
    posts = write_posts(dice, topics, popular, names)
    comments = write_comments(dice, posts, names)
    count = {topic["name"]: 0 for topic in topics}
    for post in posts:
        count[str(post["forum"])] += 1
    forums(db, dice, topics, names, count)
    insert(db, "post", posts)
    insert(db, "comment", comments)
    own = [post["id"] for post in dice.sample([post for post in posts if post["author"] != USER], 12)]
    insert(db, "vote", [{"user": USER, "kind": "post", "target": target, "value": dice.pick((1, 1, 1, -1))}
                        for target in sorted(own)])  # fmt: skip


def people(db: sqlite3.Connection, dice: Dice, topics: list[Row]) -> list[str]:
    """The accounts: the one of the episode and others."""
    taken = {USER}
    for _ in range(USERS - 1):
        distinct(
            lambda: "".join(
                (
                    dice.pick(WORDS["handle_first"]),
                    dice.pick(WORDS["handle_last"]),
                    dice.pick(("", "", str(dice.number(2, 99)))),
                )
            ),
            taken,
        )
    names = sorted(taken)
    rows = []
    for name in names:
        own = name == USER
        rows.append({
            "name": name, "password": PASSWORD if own else f"{slug(name)}-{dice.number(1000, 9999)}",
            "email": f"{name.lower()}@mail.example",
            "bio": dice.write(dice.pick(WORDS["bios"]), with_forms(dice.pick(topics)["name"])), "theme": "light",
            "joined": dice.moment(2200, 400),
        })  # fmt: skip
    insert(db, "user", rows)
    return names


def forums(db: sqlite3.Connection, dice: Dice, topics: list[Row], names: list[str], count: dict[str, int]) -> None:
    """The forums with their moderators and the subscriptions of the episode's user."""
    followed = {topic["name"] for topic in dice.sample(topics, 5)}
    rows, moderators = [], []
    for topic in topics:
        own = topic["words"]
        first, second, third = dice.sample(own["things"], 3)
        rows.append({
            "name": topic["name"], "title": topic["title"],
            "description": f"Everything about {first}, {second} and {third}.",
            "sidebar": f"Be kind. Search before you post. House rule: {dice.pick(own['tip'])}.",
            "tags": ", ".join(sorted((first, second, third))), "created": dice.moment(2500, 1500),
            "subscribers": dice.skewed(800, 90_000) + dice.number(1, 99), "submissions": count[topic["name"]],
        })  # fmt: skip
        moderators += [{"forum": topic["name"], "user": name} for name in sorted(dice.sample(names, dice.number(1, 3)))]
    insert(db, "forum", rows)
    insert(db, "moderator", moderators)
    insert(db, "subscription", [{"user": USER, "forum": name} for name in sorted(followed)])


@cache
def with_forms(forum: str) -> dict[str, list[str]]:
    """A forum's words, and other forms of them that some sentences need. They depend on no seed."""
    own = next(topic["words"] for topic in WORDS["topics"] if topic["name"] == forum)
    return {
        **own,
        "problem_up": [word[0].upper() + word[1:] for word in own["problem"]],
        "things_up": [word[0].upper() + word[1:] for word in own["things"]],
        "did_news": [word.replace(" my ", " its ") for word in own["did"]],
    }


def vocabulary(dice: Dice, forum: str) -> dict[str, list[str]]:
    """A forum's words with those that are new for each text."""
    own = with_forms(forum)
    first, second = dice.sample(own["brand"], 2)
    price, years = str(dice.number(2, 60) * 10), str(dice.number(2, 9))
    return {**own, "brand": [first], "brand2": [second], "price": [price], "years": [years]}


def write_posts(dice: Dice, topics: list[Row], popular: list[Row], names: list[str]) -> list[Row]:
    """All posts, oldest first; the first of the `popular` topics have most of them."""
    taken: set[str] = set()
    writers = [name for name in names if name != USER]
    # every forum has some posts, the user some too
    wanted = [topic for topic in topics for _ in range(9)]
    wanted += [popular[dice.skewed(0, len(topics) - 1)] for _ in range(POSTS - len(wanted))]
    moments = sorted({dice.moment(420) for _ in range(POSTS + 40)})[-POSTS:]
    posts: list[Row] = []
    for number, (topic, created) in enumerate(zip(dice.sample(wanted, POSTS), moments, strict=True), 1):
        own = vocabulary(dice, topic["name"])
        link = dice.chance(0.25)
        patterns = WORDS["link_titles"] if link else WORDS["titles"]

        def title(own: dict[str, list[str]] = own, patterns: tuple[str, ...] = patterns) -> str:
            text = dice.write(dice.pick(patterns), own)
            return text[0].upper() + text[1:]

        head = distinct(title, taken)
        body = " ".join(dice.write(line, own) for line in dice.sample(WORDS["bodies"], dice.number(2, 5)))
        host = dice.pick(("dailyharbor", "fieldnotes", "thecommonroom", "longreads-weekly", "openalmanac"))
        upvotes, downvotes = dice.skewed(1, 2400), dice.skewed(0, 160)
        posts.append({
            "id": number, "forum": topic["name"], "author": USER if number % 44 == 20 else dice.pick(writers),
            "title": head, "slug": slug(head), "body": "" if link and dice.chance(0.7) else body,
            "url": f"https://{host}.example/{slug(head)}" if link else "", "created": created, "upvotes": upvotes,
            "downvotes": downvotes, "score": upvotes - downvotes, "comments": 0,
            "hot": heat(upvotes - downvotes, created),
        })  # fmt: skip
    return posts


def write_comments(dice: Dice, posts: list[Row], names: list[str]) -> list[Row]:
    """All comments, each with an id above its parent's; posts count theirs."""
    shares = [dice.skewed(0, 24) for _ in posts]
    missing = COMMENT_COUNT - sum(shares)
    while missing:
        place = dice.number(0, len(posts) - 1)
        if missing > 0:
            shares[place] += 1
            missing -= 1
        elif shares[place] > 0:
            shares[place] -= 1
            missing += 1
    comments: list[Row] = []
    for post, share in zip(posts, shares, strict=True):
        post["comments"] = share
        thread: list[tuple[int, datetime]] = []
        begun = datetime.fromisoformat(str(post["created"]))
        room = max(1.0, (TODAY - begun).total_seconds() / 60 - 5)
        minutes = sorted(dice.uniform() for _ in range(share))
        for minute in minutes:
            parent = None
            when = begun + timedelta(minutes=min(room, 5 + minute * min(room, 4000)))
            if thread and dice.chance(0.55):
                parent = dice.pick(thread)[0]
            own = vocabulary(dice, post["forum"])
            text = dice.write(dice.pick(WORDS["comments"]), own)
            if dice.chance(0.35):
                text += " " + dice.write(dice.pick(WORDS["bodies"][1:12]), own)
            upvotes, downvotes = dice.skewed(1, 320), dice.skewed(0, 60)
            number = len(comments) + 1
            comments.append({
                "id": number, "post": post["id"], "parent": parent, "author": dice.pick(names),
                "body": text[0].upper() + text[1:], "created": stamp(when), "upvotes": upvotes,
                "downvotes": downvotes, "score": upvotes - downvotes,
            })  # fmt: skip
            thread.append((number, when))
    return comments


STORE = Store("forum", SCHEMA, fill)
