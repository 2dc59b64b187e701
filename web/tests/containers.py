"""Recorded pages behind real ports, in the place of WebArena's containers, and tasks on them."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia")
LANDING = "/wikipedia_en/A/Landing"
ACCOUNT = "<h1>My Account</h1><div class='box-information'><p>Emma Lopez<br>emma.lopez@gmail.com</p></div>"
ORDER = "<h1>Order # 000000187</h1><div class='box-order-shipping-address'>Pittsburgh, PA</div>"
MEMBERS = (
    "<table><tr><td data-label='Account'><span class='gl-avatar-labeled-sublabel'>@yjlou</span></td>"
    "<td class='col-max-role'><span>Developer</span></td></tr></table>"
)
RULE = """<div data-index='actions'><h3 class='admin__collapsible-title'>Actions</h3><div id='fields'></div></div>
<script>
document.querySelector('h3').onclick = () => {
  document.querySelector('#fields').innerHTML = '<input name="discount_amount" value="20">'
}</script>"""
IMAGES = "".join(f"<img src='/tile/{number}.png' alt=''>" for number in range(8))
PAGES = {
    "shopping": {"/": "<a href='OWN/customer/account/'>My Account</a>", "/sales/order/view/order_id/187/": ORDER},
    "shopping_admin": {"/admin/promo": RULE},
    "reddit": {"/f/books/42/hobbit": "FORM"},
    "gitlab": {"/byteblaze/site/-/project_members": MEMBERS},
    "map": {"/": f"<p>Map</p>{IMAGES}"},
    "wikipedia": {LANDING: "<a href='Pi'>Pi</a>", "/wikipedia_en/A/Pi": "<h1>Pi</h1>"},
}
REST = {
    "/rest/V1/orders": {"items": [{"increment_id": "000000187"}]},
    "/rest/V1/products/B00/reviews": [
        {"nickname": "Old", "ratings": [{"rating_name": "Rating", "percent": 20}]},
        {"nickname": "Emma", "ratings": [{"rating_name": "Rating", "percent": 100}]},
    ],
}


class Container(ThreadingHTTPServer):
    """One site: recorded pages, one form that changes something, a log-in by cookie, and the shop's REST interface."""

    def __init__(self, site: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.site, self.comments, self.resets = site, list[str](), 0
        self.meeting = threading.Barrier(2, timeout=20)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Container

    def do_GET(self) -> None:
        server, path = self.server, self.path.partition("?")[0]
        page = PAGES[server.site].get(path)
        if path.startswith("/rest/"):
            signed = self.headers.get("authorization") == "Bearer secret"
            status = 401 if not signed else 200 if path in REST else 404
            return self.answer(status, json.dumps(REST.get(path)), "application/json")
        if path.startswith("/tile/"):
            server.meeting.wait()  # comes to an end only where two are asked for at the same time
            return self.answer(200, "", "image/png")
        if path == "/customer/account/":
            known = "PHPSESSID=emma" in self.headers.get("cookie", "")
            return self.answer(200, ACCOUNT if known else "<h1>Customer Login</h1>")
        if page == "FORM":
            listed = "".join(f"<p class='comment'>{text}</p>" for text in server.comments)
            page = f"{listed}<form method='post' action='/f/books/42/comment'><input name='text' aria-label='Comment'>"
        if page is None and path == "/f/books/42/":
            page = "".join(f"<p class='comment'>{text}</p>" for text in server.comments)
        return self.answer(404 if page is None else 200, (page or "").replace("OWN", server.address))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path == "/reset":
            self.server.resets += 1
            self.server.comments.clear()
            return self.answer(200, "")
        if self.path.endswith("/token"):
            right = json.loads(body) == {"username": "admin", "password": "admin1234"}
            return self.answer(200 if right else 401, '"secret"', "application/json")
        self.server.comments.append(parse_qs(body)["text"][0])
        return self.answer(303, "", location=f"{self.server.address}/f/books/42/hobbit")

    def answer(self, status: int, text: str, kind: str = "text/html", location: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        if location:
            self.send_header("location", location)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        return


def base_urls(containers: dict[str, Container]) -> dict[str, str]:
    below = {"shopping_admin": "/admin", "wikipedia": LANDING}
    return {site: server.address + below.get(site, "") for site, server in containers.items()}


def raw(start: str, log_in: str = "", **evaluation: Any) -> dict[str, Any]:
    """A task as in WebArena's files, on the site that its first address names."""
    site = start[2:].partition("__")[0].lower()
    return {
        "task_id": 1, "sites": [site], "start_url": start, "intent": "Do it.", "intent_template_id": 1,
        "storage_state": f"./.auth/{log_in}_state.json" if log_in else None,
        "eval": {"eval_types": ["program_html"], "reference_answers": None, "reference_url": "", "program_html": [],
                 **evaluation},
    }  # fmt: skip


def on_page(url: str, locator: str, **contents: Any) -> list[dict[str, Any]]:
    return [{"url": url, "locator": locator, "required_contents": contents}]


def string(**answers: Any) -> dict[str, Any]:
    return {"eval_types": ["string_match"], "reference_answers": answers}


SHIPPED_TO = "document.querySelector('.box-order-shipping-address').outerText"
ORDER_URL = "__SHOPPING__/sales/order/view/order_id/187/"
AUTHOR, RATING = (f"func:shopping_get_sku_latest_review_{what}('B00')" for what in ("author", "rating"))
ROLE = "func:gitlab_get_project_memeber_role(__page__, 'yjlou')"
REVIEW = [*on_page("last", AUTHOR, must_include=["Emma"]), *on_page("last", RATING, must_include=["100"])]
LATEST = on_page("func:shopping_get_latest_order_url()", SHIPPED_TO, must_include=["Boston |OR| Pittsburgh"])
PI = "__WIKIPEDIA__/wikipedia_en/A/Pi"
MEMBERS_URL = "__GITLAB__/byteblaze/site/-/project_members"
TASKS = {
    "exact_match": (raw("__SHOPPING__", "shopping", **string(exact_match="Emma")), "Emma", "link 'My Account'"),
    "must_include": (raw("__SHOPPING__", **string(must_include=["Emma", "Lopez"])), "It is Emma Lopez", ""),
    "fuzzy_match": (raw("__REDDIT__", **string(fuzzy_match=["2.4 km"])), "2400 m", ""),
    "not achievable": (raw("__REDDIT__", **string(fuzzy_match="N/A")), "N/A", ""),
    "url_match": (raw("__WIKIPEDIA__", eval_types=["url_match"], reference_url=PI), "", "link 'Pi'"),
    "whole page": (raw("__SHOPPING__", program_html=on_page(ORDER_URL, "", must_include=["187"])), "", ""),
    "locator": (raw(ORDER_URL, program_html=on_page("last", SHIPPED_TO, must_include=["Pitt"])), "", ""),
    "latest order": (raw("__SHOPPING__", program_html=LATEST), "", ""),
    "latest review": (raw("__SHOPPING__", program_html=REVIEW), "", ""),
    "role": (raw(MEMBERS_URL, program_html=on_page("last", ROLE, must_include=["Developer"])), "", ""),
}
"""By evaluator: a task, an answer and a click that fulfil it."""
SHOWN = ("exact_match", "url_match", "whole page", "locator", "role")
"""Those whose clicks or grades are of what a browser shows."""
