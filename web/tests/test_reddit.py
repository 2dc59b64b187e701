"""The forum: its content, every change through its forms, who may change what, hostile input."""

from __future__ import annotations

import html
from collections.abc import Callable

import pytest

from oneiro_web.sites import Web
from oneiro_web.sites.reddit.content import PASSWORD, USER, heat
from oneiro_web.sites.web import original
from web.tests.visitor import HOSTILE, Visitor, crawl, fingerprint


@pytest.fixture
def forum() -> Visitor:
    return Visitor("reddit")


def of_others(forum: Visitor) -> tuple[int, str, str]:
    """A post that the user has neither written nor voted on: id, forum, slug."""
    sql = "SELECT id, forum, slug FROM post WHERE author != ? AND id NOT IN (SELECT target FROM vote) AND comments > 3"
    number, name, slug = forum.db.execute(sql, (USER,)).fetchone()
    return number, name, slug


def own(forum: Visitor) -> tuple[int, str, str]:
    """A post of the user."""
    number, name, slug = forum.db.execute("SELECT id, forum, slug FROM post WHERE author = ?", (USER,)).fetchone()
    return number, name, slug


@pytest.mark.parametrize("seed", [0, 5])
def test_the_content_has_the_promised_sizes_and_counts_itself_correctly(seed: int) -> None:
    forum = Visitor("reddit", seed)
    sizes = {"forum": 20, "post": 400, "comment": 2000, "user": 80}
    assert {table: forum.value(f"SELECT count(*) FROM {table}") for table in sizes} == sizes
    assert not forum.value(
        "SELECT count(*) FROM post WHERE comments != (SELECT count(*) FROM comment WHERE post = post.id)"
    )
    counted = "SELECT count(*) FROM post WHERE forum = forum.name"
    assert not forum.value(f"SELECT count(*) FROM forum WHERE submissions != ({counted}) OR submissions = 0")
    assert not forum.value("SELECT count(*) FROM comment JOIN comment AS above ON above.id = comment.parent "
                           "WHERE above.post != comment.post OR above.id >= comment.id OR above.created > "
                           "comment.created")  # fmt: skip
    assert forum.value("SELECT count(*) FROM post WHERE author = ?", USER)
    assert forum.value("SELECT count(DISTINCT title) FROM post") == 400
    assert not forum.value("SELECT count(*) FROM post WHERE title LIKE '%{%' OR body LIKE '%{%'")


def test_a_seed_always_gives_the_same_rows_and_another_seed_others() -> None:
    first = fingerprint("reddit", 3)
    original.cache_clear()
    assert fingerprint("reddit", 3) == first != fingerprint("reddit", 4)


def test_every_link_within_reach_answers(forum: Visitor) -> None:
    assert crawl(forum, 220) == 220


def test_lists_are_sorted_and_their_pages_do_not_overlap(forum: Visitor) -> None:
    name = forum.value("SELECT forum FROM post GROUP BY forum ORDER BY count(*) DESC LIMIT 1")
    titles = [
        row[0]
        for row in forum.db.execute("SELECT title FROM post WHERE forum = ? ORDER BY score DESC, id DESC", (name,))
    ]
    first, second = (html.unescape(forum.text(f"/f/{name}/top{page}")) for page in ("", "?p=2"))
    assert [title in first for title in titles[:30]] == [True] * 15 + [False] * 15
    assert [title in second for title in titles[:30]] == [False] * 15 + [True] * 15
    biggest = forum.value("SELECT name FROM forum ORDER BY subscribers DESC, name LIMIT 1")
    page = forum.text("/forums/by_subscribers")
    assert page.index(f'href="/f/{biggest}"') == page.index('href="/f/')


def test_votes_count_by_their_logarithm_and_half_a_day_counts_as_one() -> None:
    assert heat(1000, "2026-06-15 09:00") == 3.0
    assert heat(-10, "2026-06-14 20:30") == -2.0  # minus one for the votes, minus 12.5 hours


def test_a_new_post_is_one_row_and_is_shown(forum: Visitor) -> None:
    name = forum.value("SELECT name FROM forum")

    def act() -> None:
        page = forum.follow(
            forum.post("/submit", forum=name, title="Is <b>tea</b> & cake enough?", body="Line one", url="")
        )
        assert "Is &lt;b&gt;tea&lt;/b&gt; &amp; cake enough?" in page and "Your post is online." in page

    assert forum.changes(act) == {"post": (0, 1), "vote": (0, 1), "forum": (1, 1)}
    row = forum.db.execute("SELECT * FROM post ORDER BY id DESC").fetchone()
    assert (row["forum"], row["author"], row["title"], row["body"]) == (
        name,
        USER,
        "Is <b>tea</b> & cake enough?",
        "Line one",
    )
    assert row["created"] == "2026-06-15 09:01" and row["score"] == 1
    assert "Is &lt;b&gt;tea" in forum.text(f"/f/{name}/new")


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"title": "", "forum": "known"}, "A title is needed."),
        ({"title": "x" * 201, "forum": "known"}, "At most 200 characters."),
        ({"title": "Fine", "forum": "no_such"}, "Choose one of the forums."),
        ({"title": "Fine", "forum": "known", "url": "javascript:alert(1)"}, "A link begins with"),
    ],
)
def test_a_post_that_is_wrong_changes_nothing(forum: Visitor, form: dict[str, str], error: str) -> None:
    if form["forum"] == "known":
        form = {**form, "forum": str(forum.value("SELECT name FROM forum"))}

    def act() -> None:
        reply = forum.post("/submit", **form)
        assert reply.status == 422 and error in reply.body.decode()

    assert forum.changes(act) == {}


def test_comments_and_replies_stand_under_what_they_answer(forum: Visitor) -> None:
    number, name, slug = of_others(forum)
    counted = forum.value("SELECT comments FROM post WHERE id = ?", number)

    def act(**form: object) -> Callable[[], str]:
        return lambda: forum.follow(forum.post(f"/f/{name}/{number}/comment", **form))

    assert forum.changes(act(body="First <i>words</i>")) == {"comment": (0, 1), "vote": (0, 1), "post": (1, 1)}
    above = forum.value("SELECT max(id) FROM comment")
    assert f"?reply={above}" in forum.text(f"/f/{name}/{number}/{slug}")
    assert f'name="parent" value="{above}"' in forum.text(f"/f/{name}/{number}/{slug}?reply={above}")
    forum.changes(act(body="An answer", parent=above))
    row = forum.db.execute("SELECT * FROM comment ORDER BY id DESC").fetchone()
    assert (row["parent"], row["post"], row["author"], row["body"]) == (above, number, USER, "An answer")
    assert forum.value("SELECT comments FROM post WHERE id = ?", number) == counted + 2  # type: ignore[operator]
    page = forum.text(f"/f/{name}/{number}/{slug}")
    assert page.index("First &lt;i&gt;words") < page.index("An answer")
    for form in ({"body": ""}, {"body": "x", "parent": "999999"}, {"body": "x", "parent": "9" * 30}):
        assert forum.changes(lambda form=form: forum.post(f"/f/{name}/{number}/comment", **form)) == {}


@pytest.mark.parametrize("kind", ["post", "comment"])
def test_a_vote_is_cast_turned_and_taken_back(forum: Visitor, kind: str) -> None:
    number = of_others(forum)[0] if kind == "post" else 7

    def read() -> tuple[int, int, int]:
        up, down, score = forum.db.execute(
            f"SELECT upvotes, downvotes, score FROM {kind} WHERE id = ?", (number,)
        ).fetchone()
        return up, down, score

    up, down, score = read()
    own_vote = ("SELECT value FROM vote WHERE user = ? AND kind = ? AND target = ?", USER, kind, number)
    for choice, value, expected in (
        ("up", 1, (up + 1, down, score + 1)), ("up", 1, (up + 1, down, score + 1)), ("down", -1, (up, down + 1,
        score - 1)),
        ("none", None, (up, down, score)),
    ):  # fmt: skip
        assert forum.post(f"/vote/{kind}/{number}", choice=choice).status == 303
        assert forum.value(*own_vote) == value and read() == expected
    assert forum.post(f"/vote/{kind}/{number}", choice="sideways").status == 404
    assert forum.post(f"/vote/{kind}/99999999", choice="up").status == 404
    reply = forum.post(f"/vote/{kind}/{number}?next=//elsewhere.com", choice="up")
    assert reply.header("location") == "/"


def test_subscriptions_are_counted(forum: Visitor) -> None:
    name = forum.value("SELECT name FROM forum WHERE name NOT IN (SELECT forum FROM subscription)")
    count = forum.value("SELECT subscribers FROM forum WHERE name = ?", name)
    assert forum.changes(lambda: forum.post(f"/f/{name}/subscribe")) == {"subscription": (0, 1), "forum": (1, 1)}
    assert forum.changes(lambda: forum.post(f"/f/{name}/subscribe")) == {}
    assert forum.value("SELECT subscribers FROM forum WHERE name = ?", name) == count + 1  # type: ignore[operator]
    assert "Unsubscribe" in forum.text(f"/f/{name}") and f'"/f/{name}"' in forum.text("/subscribed")
    assert forum.changes(lambda: forum.post(f"/f/{name}/unsubscribe")) == {"subscription": (1, 0), "forum": (1, 1)}


def test_settings_are_the_own_ones_only(forum: Visitor) -> None:
    assert forum.changes(lambda: forum.post(f"/user/{USER}/edit_biography", bio="Reader of maps")) == {"user": (1, 1)}
    assert "Reader of maps" in forum.text(f"/user/{USER}")
    saved = forum.follow(forum.post(f"/user/{USER}/preferences", email="a@b.example", theme="dark"))
    assert "a@b.example" in saved and forum.value("SELECT theme FROM user WHERE name = ?", USER) == "dark"
    for form in ({"email": "nowhere", "theme": "dark"}, {"email": "a@b.example", "theme": "pink"}):
        assert forum.changes(lambda form=form: forum.post(f"/user/{USER}/preferences", **form)) == {}
    other = forum.value("SELECT name FROM user WHERE name != ?", USER)
    assert forum.get(f"/user/{other}/preferences").status == 403
    assert forum.post(f"/user/{other}/edit_biography", bio="mine now").status == 403


def test_a_forum_is_created_and_edited_by_its_moderator(forum: Visitor) -> None:
    form = {
        "name": "Cyberpunk",
        "title": "Cyberpunk",
        "description": "Welcome to the future",
        "sidebar": "Games",
        "tags": "neon",
    }
    changed = forum.changes(lambda: forum.follow(forum.post("/create_forum", **form)))
    assert changed == {"forum": (0, 1), "moderator": (0, 1), "subscription": (0, 1)}
    assert "Welcome to the future" in forum.text("/f/cyberpunk")
    taken = forum.post("/create_forum", **{**form, "name": "CYBERPUNK"})
    assert taken.status == 422 and "A forum with this name exists." in taken.body.decode()
    assert forum.post("/create_forum", **{**form, "name": "no spaces"}).status == 422
    forum.follow(forum.post("/f/Cyberpunk/edit", title="New", description="Changed", sidebar="", tags=""))
    assert forum.value("SELECT description FROM forum WHERE name = 'Cyberpunk'") == "Changed"
    other = forum.value(
        "SELECT forum FROM moderator WHERE forum NOT IN (SELECT forum FROM moderator WHERE user = ?)", USER
    )
    assert forum.post(f"/f/{other}/edit", title="Mine", description="Mine").status == 403


def test_only_the_author_edits_a_post_and_deleting_takes_its_thread_along(forum: Visitor) -> None:
    number, name, slug = own(forum)
    changed = forum.changes(
        lambda: forum.follow(forum.post(f"/f/{name}/{number}/edit", title="Other", body="New body"))
    )
    assert changed == {"post": (1, 1)}
    assert "New body" in forum.text(f"/f/{name}/{number}/{slug}")
    assert forum.post(f"/f/{name}/{number}/edit", title="").status == 422
    other, place, _ = of_others(forum)
    if not forum.value("SELECT 1 FROM moderator WHERE forum = ? AND user = ?", place, USER):
        assert forum.post(f"/f/{place}/{other}/delete").status == 403
    assert forum.post(f"/f/{place}/{other}/edit", title="Mine").status == 403
    comments = forum.value("SELECT count(*) FROM comment WHERE post = ?", number)
    changed = forum.changes(lambda: forum.follow(forum.post(f"/f/{name}/{number}/delete")))
    assert changed.pop("comment", (0, 0)) == (comments, 0) and changed == {"post": (1, 0), "forum": (1, 1)}
    assert forum.get(f"/f/{name}/{number}/{slug}").status == 404


def test_own_comments_are_edited_and_deleted_unless_they_were_answered(forum: Visitor) -> None:
    number, name, _ = of_others(forum)
    forum.post(f"/f/{name}/{number}/comment", body="Mine")
    comment = forum.value("SELECT max(id) FROM comment")
    forum.follow(forum.post(f"/comment/{comment}/edit", body="Mine, better"))
    assert forum.value("SELECT body FROM comment WHERE id = ?", comment) == "Mine, better"
    other = forum.value("SELECT id FROM comment WHERE author != ?", USER)
    assert forum.post(f"/comment/{other}/edit", body="Not mine").status == 403
    forum.post(f"/f/{name}/{number}/comment", body="Answer", parent=comment)
    assert forum.changes(lambda: forum.post(f"/comment/{comment}/delete")) == {}
    answer = forum.value("SELECT max(id) FROM comment")
    forum.follow(forum.post(f"/comment/{answer}/delete"))
    assert forum.value("SELECT count(*) FROM comment WHERE id = ?", answer) == 0


def test_two_episodes_do_not_see_each_other(forum: Visitor) -> None:
    other = Visitor("reddit")
    forum.post(f"/user/{USER}/edit_biography", bio="Only here")
    assert "Only here" not in other.text(f"/user/{USER}")
    assert "Only here" not in "\n".join(Web(0).database(forum.site).iterdump())


def test_who_is_not_logged_in_reads_and_is_sent_to_log_in_for_the_rest() -> None:
    guest = Visitor("reddit", logged_in=False)
    assert guest.get("/submit").header("location") == "/login?next=%2Fsubmit"
    assert guest.changes(lambda: guest.post("/vote/post/3", choice="up")) == {}
    assert guest.post("/vote/post/3", choice="up").header("location") == "/login"
    place = guest.value("SELECT forum FROM post WHERE id = 3")
    assert "Log in to comment" in guest.text(f"/f/{place}/3")
    assert guest.post("/login", username=USER, password="wrong").status == 422
    reply = guest.post("/login", username=USER, password=PASSWORD, next="//elsewhere.com")
    assert reply.header("location") == "/"
    guest.cookies = {"session": reply.header("set-cookie").split("=")[1].split(";")[0]}
    assert USER in guest.text("/submit")
    guest.post("/logout")
    assert guest.get("/submit").status == 303


def test_unknown_things_are_not_found(forum: Visitor) -> None:
    for path in ("/f/none_such", "/f/none_such/1", "/user/nobody_here", "/sideways", "/forums/by_luck",
    "/f/books/999999999",
                 "/f/books/99999999999999999999", "/comment/999999/edit"):  # fmt: skip
        assert forum.get(path).status == 404, path


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_input_is_shown_as_text_and_breaks_nothing(forum: Visitor, text: str) -> None:
    number, name, slug = of_others(forum)
    for path in ("/", "/forums", "/search", f"/f/{name}/top", f"/f/{name}/{number}/{slug}", f"/user/{USER}/comments"):
        page = forum.text(path, p=text, q=text, t=text, order=text, reply=text)
        assert "<script>alert" not in page
    forum.follow(forum.post("/submit", forum=name, title=f"t {text}", body=text))
    page = forum.text(f"/f/{name}/new")
    assert "<script>alert" not in page and "{{" not in page.replace("{{ 7 * 7 }}", "")
    assert forum.post("/submit", forum=text, title=text, url=text).status == 422
    assert forum.post("/create_forum", name=text, title=text, description=text).status == 422
