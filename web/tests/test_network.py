"""WebArena-Verified's checks of traffic: the requests of an episode are recorded and compared."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from oneiro_web.env import WebEnv
from oneiro_web.grading.network import at, event_match
from oneiro_web.grading.typed import is_pattern
from oneiro_web.sites.web import Reply
from oneiro_web.tasks import Task, VerifiedCheck, load_tasks, read_task
from oneiro_web.traffic import Exchange, TrafficWeb
from web.tests.pages import Pages, html
from web.tests.test_grading import DATA, needs_data

FORM = "application/x-www-form-urlencoded"


def asked(method: str, url: str, body: str = "", status: int = 200, kind: str = FORM, **headers: str) -> Exchange:
    return Exchange(method, url, {"content-type": kind, **headers}, body.encode(), Reply(status, (), b""))


def score(expected: dict[str, Any], *traffic: Exchange, navigates: bool = False, **more: Any) -> float:
    check = VerifiedCheck(evaluator="NetworkEventEvaluator", expected=expected, **more)
    found = event_match(check, "http://x/", traffic, navigates)
    assert not found.unsupported, found.reason
    return found.score


BIO = {"url": "http://r/bio", "http_method": "POST", "post_data": {"bio": "I am a robot"}, "response_status": 302}


@pytest.mark.parametrize(
    ("traffic", "right"),
    [
        ([asked("POST", "http://r/bio", "bio=I+am+a+ROBOT&token=1", 302)], 1),
        ([asked("POST", "http://r/bio/", "bio=I+am+a+robot", 302), asked("GET", "http://r/")], 1),
        ([asked("POST", "http://r/bio", "bio=I+am+a+cat", 302)], 0),
        ([asked("POST", "http://r/bio", "bio=I+am+a+robot", 422)], 0),
        ([asked("GET", "http://r/bio", "bio=I+am+a+robot", 302)], 0),
        ([asked("POST", "http://r/name", "bio=I+am+a+robot", 302)], 0),
        ([asked("POST", "http://r/bio", "bio=I+am+a+robot", 302), asked("POST", "http://r/bio", "bio=no", 302)], 0),
        ([asked("POST", "http://r/bio?x=1", "bio=I+am+a+robot", 302)], 0),
        ([], 0),
    ],
)
def test_the_last_request_to_an_address_must_have_sent_the_fields(traffic: list[Exchange], right: int) -> None:
    assert score(BIO, *traffic) == right


def test_any_request_may_do_and_none_may_be_wanted() -> None:
    both = [asked("POST", "http://r/bio", "bio=I+am+a+robot", 302), asked("POST", "http://r/bio", "bio=no", 302)]
    assert score(BIO, *both, last_event_only=False) == 1
    assert score(BIO, *both, should_not_exist=True) == 0
    assert score(BIO, asked("GET", "http://r/bio"), should_not_exist=True) == 1


def test_a_task_to_open_a_page_looks_at_the_last_page_that_was_opened() -> None:
    wanted = {"url": ["http://r/todos", "http://r/todos?state=pending"]}
    page = asked("GET", "http://r/todos?state=pending", accept="text/html")
    other = asked("GET", "http://r/next", accept="text/html")
    data = asked("GET", "http://r/data", accept="application/json")
    assert score(wanted, other, page, data, navigates=True) == 1
    assert score(wanted, page, other, navigates=True) == 0
    assert score(wanted, asked("GET", "http://r/todos?state=done", accept="text/html"), navigates=True) == 0


def test_queries_are_compared_without_what_is_ignored() -> None:
    wanted = {"url": "http://r/list?sort=asc", "query_params": {"who": ["ann"], "state": "^(open|)$"}}
    ignored = {"ignored_query_params_patterns": ["^PAGE", "sort"], "ignored_query_params": ["x"]}
    for query, right in (
        ("who=ann&x=1&page=2", 1),
        ("who=ann&state=open&sort=z", 1),
        ("who=bob", 0),
        ("who=ann&y=1", 0),
    ):
        assert score(wanted, asked("GET", f"http://r/list?{query}"), **ignored) == right
    dated = {"query_params_schema": {"properties": {"from": {"type": "array", "items": {"format": "date"}}}}}
    wanted = {"url": "http://r/list", "query_params": {"from": ["02/01/2023"]}}
    assert score(wanted, asked("GET", "http://r/list?from=2023-02-01"), **dated) == 1
    assert score(wanted, asked("GET", "http://r/list?from=2023-02-02"), **dated) == 0


def test_a_query_may_hide_in_the_path() -> None:
    hidden = base64.urlsafe_b64encode(b"from=1&to=2").decode().rstrip("=")
    wanted = {"url": "http://r/report", "query_params": {"from": ["1"], "to": ["2"]}}
    assert score(wanted, asked("GET", f"http://r/report/{hidden}/"), decode_base64_query=True) == 1
    assert score(wanted, asked("GET", f"http://r/report/{hidden}/")) == 0


def test_patterns_referring_pages_cookies_and_answers_are_compared() -> None:
    wanted = {
        "url": r"^http://r/projects/\d+/notes$", "http_method": "POST",
        "headers": {"referer": "http://r/ann/issues?state=open"}, "post_data": {"$.note.note": "^.*@ann.*$"},
        "response_content": {"$.items[0].qty": 2, "done": True}, "response_cookies": {"said": "^.*added.*$"},
    }  # fmt: skip
    right: dict[str, Any] = {
        "url": "http://r/projects/7/notes", "referer": "http://r/ann/issues/?state=open",
        "sent": {"note": {"note": "for @Ann"}}, "reply": {"items": [{"qty": 2}], "done": True},
        "cookie": "said=%22added",
    }  # fmt: skip

    def fits(**changed: Any) -> float:
        one = {**right, **changed}
        headers = {"content-type": "application/json", "referer": one["referer"]}
        answer = (("content-type", "application/json"), ("set-cookie", f"{one['cookie']}; Path=/"))
        reply = Reply(200, answer, json.dumps(one["reply"]).encode())
        return score(wanted, Exchange("POST", one["url"], headers, json.dumps(one["sent"]).encode(), reply))

    assert fits() == 1
    for key, wrong in {
        "url": "http://r/projects/x/notes", "referer": "http://r/bob/issues", "sent": {"note": "@ann"},
        "reply": {"items": [], "done": True}, "cookie": "said=no",
    }.items():  # fmt: skip
        assert fits(**{key: wrong}) == 0, key


def test_forms_of_every_encoding_are_read() -> None:
    body = '--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n2\r\n--b\r\n'
    body += (
        'Content-Disposition: form-data; name="f"; filename="x"\r\nContent-Type: text/plain\r\n\r\nfile\r\n--b--\r\n'
    )
    assert asked("POST", "http://r/", body, kind='multipart/form-data; boundary="b"').sent == {
        "a": "1\r\n2",
        "f": "file",
    }
    assert asked("POST", "http://r/", "a=1&a=2&b=").sent == {"a": "1", "b": ""}
    assert asked("POST", "http://r/", "[1", kind="application/json").sent == {}


def test_fields_are_found_by_name_pattern_and_path() -> None:
    given = {"note": {"note": "x"}, "reply_7[c]": "y", "items": [{"a-b": 1}]}
    assert [at(key, given) for key in ("note", "$.note.note", r"$.^reply_\d+\[c\]$", "$.items[0]['a-b']")] == [
        {"note": "x"}, "x", "y", 1
    ]  # fmt: skip
    assert [at(key, given) for key in ("none", "$.note.no.way", "$.items[3].x", "$.^z$")] == [None] * 4


def right_traffic(check: VerifiedCheck) -> Exchange | None:
    """A request as a check wants it; None where it wants a pattern or a path, for which there is no one text."""
    expected = json.loads(re.sub(r"{{\w+}}", "7", json.dumps(check.expected)))  # what only the site knows
    places = expected["url"] if isinstance(expected["url"], list) else [expected["url"]]
    sent, query = expected.get("post_data") or {}, expected.get("query_params") or {}
    texts = [places[0], *sent, *sent.values(), *(value for values in query.values() for value in values)]
    if any(isinstance(one, str) and (is_pattern(one) or one.startswith("$")) for one in texts):
        return None
    if any(expected.get(key) for key in ("headers", "response_content", "response_cookies")):
        return None
    url = places[0] + ("&" if "?" in places[0] else "?") + urlencode(query, doseq=True) if query else places[0]
    body = urlencode(
        {key: value[0] if isinstance(value, list) else value for key, value in sent.items() if value is not None}
    )
    status = expected.get("response_status") or 200
    return asked(expected.get("http_method") or "GET", url, body, max(200, status), accept="text/html")


@needs_data
def test_every_public_check_of_traffic_is_met_by_what_it_asks_for_and_by_nothing_else() -> None:
    met = missed = other = unsupported = 0
    for task in load_tasks(DATA / "webarena_verified_1.2.3.json"):
        assert isinstance(task.eval, tuple)
        navigates = task.eval[0].expected["task_type"] == "navigate"
        for check in task.eval[1:]:
            found = event_match(check, "http://x/", [], navigates)
            unsupported += found.unsupported
            if not found.unsupported:
                assert found.score == float(check.should_not_exist)
            one = right_traffic(check)
            if one is None:
                other += 1
            elif check.should_not_exist:
                assert event_match(check, "http://x/", [one], navigates).score == 0
            else:
                met += event_match(check, "http://x/", [one], navigates).score == 1
                missed += event_match(check, "http://x/", [one], navigates).score != 1
    assert (missed, unsupported) == (0, 0), (met, other)
    assert met > 400


def test_an_episode_of_a_verified_task_is_graded_by_its_own_traffic() -> None:
    checks = [
        {"evaluator": "AgentResponseEvaluator", "expected": {"task_type": "mutate", "status": "SUCCESS"}},
        {
            "evaluator": "NetworkEventEvaluator",
            "expected": {"url": "__REDDIT__/search", "query_params": {"q": ["tea"]}},
        },
    ]
    task: Task = read_task(
        {"task_id": 1, "sites": ["reddit"], "intent": "Search tea.", "start_urls": ["__REDDIT__"], "eval": checks}
    )
    world = WebEnv()
    answer = 'stop [{"task_type": "MUTATE", "status": "SUCCESS", "retrieved_data": null}]'
    for address, reward in (("http://reddit.com/search?q=tea", 1.0), ("http://reddit.com/search?q=coffee", 0.0)):
        world.reset(seed=0, options={"task": task})
        world.step(f"goto [{address}]")
        world.step("go_back")
        assert world.step(answer)[1] == reward
    world.close()


def test_traffic_is_that_of_one_web_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneiro_web.traffic.MAX_BODY_BYTES", 4)
    web = TrafficWeb(Pages({"http://r/": html("<p>long")}))
    assert web.request("POST", "http://r/", {"Accept": "text/html"}, b"a=12345").body == b"<p>long"
    (one,) = web.traffic
    assert (one.headers, one.body, one.reply.body) == ({"accept": "text/html"}, b"a=12", b"<p>l")
