"""The forum: its pages and their addresses."""

from __future__ import annotations

from oneiro_web.sites.base import Site, route
from oneiro_web.sites.lists import account_routes
from oneiro_web.sites.reddit.content import STORE, USER
from oneiro_web.sites.reddit.pages import changes, reading

LOGIN = "/login"

SITE = Site(
    name="reddit",
    title="Postbox",
    host="reddit.com",
    home="/",
    store=STORE,
    user=USER,
    account=(USER, "lantern-2026"),
    pages=[
        *account_routes(LOGIN, "/logout"),
        route("/", reading.front),
        route("/forums", reading.forums),
        route("/forums/{order}", reading.forums),
        route("/subscribed", reading.subscribed, login=LOGIN),
        route("/subscribed/{sort}", reading.subscribed, login=LOGIN),
        route("/search", reading.search),
        route("/submit", changes.show_submit, login=LOGIN),
        route("/submit", changes.submit, post=True, login=LOGIN),
        route("/submit/{forum}", changes.show_submit, login=LOGIN),
        route("/create_forum", changes.show_create_forum, login=LOGIN),
        route("/create_forum", changes.create_forum, post=True, login=LOGIN),
        route("/vote/{kind}/{id:id}", changes.vote, post=True, login=LOGIN),
        route("/comment/{id:id}/edit", changes.show_edit_comment, login=LOGIN),
        route("/comment/{id:id}/edit", changes.edit_comment, post=True, login=LOGIN),
        route("/comment/{id:id}/delete", changes.delete_comment, post=True, login=LOGIN),
        route("/user/{name}", reading.user),
        route("/user/{name}/submissions", reading.user_submissions),
        route("/user/{name}/comments", reading.user_comments),
        route("/user/{name}/edit_biography", changes.show_biography, login=LOGIN),
        route("/user/{name}/edit_biography", changes.edit_biography, post=True, login=LOGIN),
        route("/user/{name}/preferences", changes.show_preferences, login=LOGIN),
        route("/user/{name}/preferences", changes.edit_preferences, post=True, login=LOGIN),
        route("/f/{forum}", reading.forum),
        route("/f/{forum}/subscribe", changes.subscribe, post=True, login=LOGIN),
        route("/f/{forum}/unsubscribe", changes.unsubscribe, post=True, login=LOGIN),
        route("/f/{forum}/edit", changes.show_edit_forum, login=LOGIN),
        route("/f/{forum}/edit", changes.edit_forum, post=True, login=LOGIN),
        route("/f/{forum}/{id:id}/comment", changes.comment, post=True, login=LOGIN),
        route("/f/{forum}/{id:id}/edit", changes.show_edit_post, login=LOGIN),
        route("/f/{forum}/{id:id}/edit", changes.edit_post, post=True, login=LOGIN),
        route("/f/{forum}/{id:id}/delete", changes.delete_post, post=True, login=LOGIN),
        route("/f/{forum}/{id:id}", reading.post),
        route("/f/{forum}/{id:id}/{slug}", reading.post),
        route("/f/{forum}/{sort}", reading.forum),
        route("/{sort}", reading.front),
    ],
)
