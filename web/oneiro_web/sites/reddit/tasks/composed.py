"""The forum's lists, as templates are composed from them."""

from __future__ import annotations

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.reddit.tasks.changes import COMMENT, COMMENTED
from oneiro_web.sites.reddit.tasks.parts import ME, open_forum
from oneiro_web.templates.schema import Act, Entity, Field, Filter, Sort
from oneiro_web.templates.table import by, click, write

WORDS = load_words("reddit")["tasks"]
SITE = "reddit"
TITLE = Field("title", "title")
OWN_VOTE = f"user = {ME} AND kind = 'post' AND target = :rowid"
POSTS = (
    "SELECT p.*, EXISTS (SELECT 1 FROM vote v WHERE v.kind = 'post' AND v.target = p.id "
    f"AND v.user = {ME}) AS voted FROM post p WHERE url = '' ORDER BY created DESC, id DESC"
)


def day(stamp: str) -> str:
    return stamp[:10]


def vote(name: str, value: int) -> Act:
    return Act(
        name.lower(),
        (f"{name} {{row}}.", f"Find {{row}} and {name.lower()} it."),
        (click("button", name),),
        lambda row: not row["voted"],
        rows={f"SELECT value FROM vote WHERE {OWN_VOTE}": (value,)},
        changes={"vote": OWN_VOTE, "post(upvotes, downvotes, score, hot)": "id = :rowid"},
    )


def follow(name: str, now: bool, *phrases: str) -> Act:
    return Act(
        name.lower(),
        phrases,
        (click("button", name),),
        lambda row: bool(row["followed"]) is not now,
        rows={f"SELECT count(*) FROM subscription WHERE user = {ME} AND forum = :rowid": (int(now),)},
        changes={"subscription": f"user = {ME} AND forum = :rowid", "forum(subscribers)": "name = :rowid"},
    )


ACTS = (
    vote("Upvote", 1),
    vote("Downvote", -1),
    Act(
        "comment",
        ('Write the comment "{text}" on {row}.', 'Comment "{text}" under {row}.'),
        (write("Comment", "{text}"), click("button", "Post comment")),
        texts=tuple(WORDS["comments"]),
        fill=lambda content, row, slots: {**slots, "post": row["id"]},
        rows={COMMENTED: (":rowid", None)},
        changes=COMMENT,
    ),
)
FIELDS = (
    Field("author", "author"),
    Field("created", "day of submission", "date", day),
    Field("score", "score", "number"),
)
OPEN = (click("link", "{rowtitle}"),)
PAGE = "/f/{rowforum}/{rowid}/{rowslug}"

FOUND = Entity(
    "found-posts",
    "post",
    SITE,
    POSTS,
    TITLE,
    (),
    fields=(*FIELDS, Field("forum", "forum")),
    filters=(
        Filter("title", ('"{title}"', 'with the title "{title}"'), label="Search query", param="q",
               searched=("title", "body"), unique=True),
    ),
    acts=ACTS,
    page="/search",
    open=OPEN,
    row_page=PAGE,
    size=15,
)  # fmt: skip

IN_FORUM = Entity(
    "posts",
    "post",
    SITE,
    POSTS.replace("WHERE url = ''", "WHERE 1"),
    TITLE,
    (by(open_forum, "{forum}"),),
    scope=("forum",),
    of=(" in the forum {forum}", " of {forum}"),
    fields=FIELDS,
    filters=(
        Filter("author", ("by {author}", "that {author} submitted"), "named"),
        Filter("day", ("submitted on {day}", "of {day}"), "named", column="created", read=day),
        Filter("title", ('"{title}"', 'with the title "{title}"'), "named"),
    ),
    sorts=(
        Sort("newest", ("that is the newest", "that was submitted last"), "created", (click("link", "New"),)),
        Sort("top", ("with the highest score", "that is rated best"), "score", (click("link", "Top"),)),
        Sort("discussed", ("with the most comments", "that is discussed most"), "comments",
             (click("link", "Most commented"),)),
    ),
    acts=ACTS,
    open=OPEN,
    opens=lambda row: not row["url"],  # the title of such a post leads elsewhere
    row_page=PAGE,
    size=15,
)  # fmt: skip

FORUMS = Entity(
    "forums",
    "forum",
    SITE,
    f"SELECT *, name AS id, name IN (SELECT forum FROM subscription WHERE user = {ME}) AS followed FROM forum "
    "ORDER BY name COLLATE NOCASE LIMIT 15",
    Field("name", "name"),
    (click("link", "Forums"),),
    fields=(
        Field("subscribers", "number of subscribers", "number"),
    ),
    filters=(
        Filter("name", ("{name}", "with the name {name}"), "named"),
        Filter("title", ('"{title}"', 'with the title "{title}"'), "named", tells=("name",)),
    ),
    acts=(
        follow("Subscribe", True, "Subscribe to {row}.", "I want to follow {row}. Subscribe me."),
        follow("Unsubscribe", False, "Unsubscribe from {row}.", "I no longer want to follow {row}. Unsubscribe me."),
    ),
    open=(click("link", "{rowname}"),),
    row_page="/f/{rowname}",
    start="/create_forum",  # the front page names forums
    size=15,
)  # fmt: skip

ENTITIES = (FOUND, IN_FORUM, FORUMS)
