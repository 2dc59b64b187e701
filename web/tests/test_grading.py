"""Graders: WebArena's rules and their variants worked by hand, every public task on a recorded page, own checks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oneiro_web.actions import Action
from oneiro_web.browsers.base import Outcome, Session, Visited
from oneiro_web.errors import WebError
from oneiro_web.grading import PromptJudge, Result, evaluate
from oneiro_web.grading.database import query
from oneiro_web.grading.tokens import tokens
from oneiro_web.grading.values import agrees, dates, durations, is_na, money, names, numbers, read_one
from oneiro_web.page import Node, Page
from oneiro_web.sites import SITES, Site, Store, Web
from oneiro_web.sites.web import original
from oneiro_web.tasks import Evaluation, PageTarget, Task, load_tasks, read_task

DATA = Path(__file__).parents[3] / "shared" / "data" / "webarena"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs the WebArena files in ../shared/data")


class RecordedSession(Session):
    """Stored documents and located texts, in place of a browser."""

    def __init__(self, url: str = "http://x/", page: str = "", located: dict[str, str] | None = None) -> None:
        self.address, self.page, self.located = url, page, located
        self.visited: list[str] = []

    @property
    def url(self) -> str:
        return self.address

    def html(self) -> str:
        return self.page

    def visit(self, url: str) -> Visited:
        self.visited.append(url)
        return Visited(url, 200, self.page)

    def locate(self, locator: str, url: str | None = None) -> str:
        if url is not None:
            self.visited.append(url)
        return self.page if self.located is None else self.located.get(locator, "")

    def observe(self) -> Page:
        raise AssertionError("graders do not observe")

    def act(self, action: Action) -> Outcome:
        raise AssertionError("graders do not act")

    def number_of(self, node: Node) -> int | None:
        raise NotImplementedError

    def simplified_html(self) -> str:
        raise AssertionError("graders do not observe")

    def screenshot(self, small: bool = False) -> bytes | None:
        return None

    def close(self) -> None: ...


def task(intent: str = "do it", spec: dict[str, Any] | None = None, **evaluation: Any) -> Task:
    """A task with this `eval`."""
    return read_task(
        {
            "task_id": 1,
            "sites": ["reddit"],
            "intent": intent,
            "start_url": "__REDDIT__",
            "storage_state": None,
            "eval": evaluation or None,
            "spec": spec,
        }
    )


def string(
    answer: str | None, variant: str = "webarena", judge: Any = None, note: str = "", **references: Any
) -> float:
    """The score of an answer."""
    asked = task(eval_types=["string_match"], reference_answers=references, string_note=note)
    return evaluate(asked, RecordedSession(), answer, variant=variant, judge=judge).score


def url(reference: str, given: str, variant: str = "webarena", **evaluation: Any) -> float:
    """The score of a last address."""
    asked = task(eval_types=["url_match"], reference_url=reference, **evaluation)
    return evaluate(asked, RecordedSession(given), "", variant=variant).score


def page(text: str, contents: dict[str, Any], variant: str = "webarena", judge: Any = None, **target: Any) -> Result:
    """The result of a check of a page."""
    wanted = {"url": "last", "locator": "", "required_contents": contents, **target}
    return evaluate(
        task(eval_types=["program_html"], program_html=[wanted]),
        RecordedSession("http://reddit.com/f/a/9/x", text),
        "",
        variant=variant,
        judge=judge,
    )


# Strings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("references", "answer", "webarena", "rlvr", "lite"),
    [
        ({"exact_match": "Quest"}, "quest", 1, 1, 1),
        ({"exact_match": "Quest"}, "'Quest'", 1, 1, 1),
        ({"exact_match": "Quest"}, " Quest ", 1, 0, 0),  # only WebArena strips
        ({"must_include": ["a b", "c"]}, "x a b, c", 1, 1, 1),
        ({"must_include": ["a b", "c"]}, "x a b", 0, 0, 0),
        ({"must_include": ["5"]}, "15", 0, 0, 0),
        ({"must_include": ["5"]}, "there are 5.", 1, 1, 1),
        ({"must_include": ["5", "6"]}, "15 and 16", 1, 1, 0),  # the rule of one character needs a single reference
        ({"must_include": ["cat"]}, "concatenate", 1, 1, 0),  # only Lite has whole words
        ({"must_include": ["cat"]}, "dog/cat", 1, 1, 1),  # which it cuts at slashes
        ({"must_include": ["65 |OR| 3"]}, "3", 0, 1, 1),  # task 386
        ({"must_include": ["65 |OR| 3"]}, "65 |OR| 3", 1, 1, 1),
        ({"must_exclude": ["cat"]}, "a cat", 0, 0, 0),
        ({"must_exclude": ["cat"]}, "a dog", 1, 1, 1),
        ({"one_of": ["cat", "dog"]}, "a dog", 1, 1, 1),
        ({"one_of": ["cat", "dog"]}, "a bird", 0, 0, 0),
        ({"required_values": [">= 300 |OR| == 5"]}, "1,000", 1, 1, 1),
        ({"required_values": [">= 300 |OR| == 5"]}, "5", 1, 1, 1),
        ({"required_values": [">= 300"]}, "299", 0, 0, 0),
        ({"required_values": [">= 300"]}, "many", 0, 0, 0),
    ],
)
def test_answers_score_as_in_each_release(references: Any, answer: str, webarena: int, rlvr: int, lite: int) -> None:
    scores = [string(answer, variant, **references) for variant in ("webarena", "rlvr", "lite")]
    assert scores == [webarena, rlvr, lite]


def test_no_answer_scores_nothing_and_the_words_of_a_runner_only_on_request() -> None:
    asked = task(eval_types=["string_match"], reference_answers={"must_include": ["5"]})
    assert evaluate(asked, RecordedSession(), None).score == 0
    released = evaluate(asked, RecordedSession(), None, early_stop_text="Early stop: Reach max steps 5")
    assert released.score == 1
    for answer in ("6", ""):
        assert evaluate(asked, RecordedSession(), answer, early_stop_text="Early stop: Reach max steps 5").score == 0


def test_na_is_said_plainly_or_its_reason_is_judged_in_place_of_all_before() -> None:
    assert string("n/a", fuzzy_match="N/A", note="no such shop") == 1
    assert string("", fuzzy_match="N/A", note="no such shop") == 0
    assert string("5", fuzzy_match="N/A", note="no such shop") == 0
    asked: list[tuple[str, str, str]] = []

    def judge(question: str, reference: str, answer: str) -> bool:
        asked.append((question, reference, answer))
        return True

    assert string("the shop is not there", judge=judge, fuzzy_match="N/A", note="no such shop") == 1
    assert asked[0][1:] == ("no such shop", "the shop is not there")
    assert (
        string("gone", judge=judge, must_include=["x"], fuzzy_match="N/A", note="n") == 1
    )  # the lost factor, as released
    assert string("", judge=judge, fuzzy_match="N/A", note="no such shop") == 0


def test_fuzzy_references_are_judged_one_by_one_and_in_lite_at_once() -> None:
    asked: list[str] = []

    def judge(question: str, reference: str, answer: str) -> bool:
        asked.append(reference)
        return reference != "b"

    assert string("x", judge=judge, fuzzy_match=["a", "b"]) == 0
    assert string("x", "lite", judge=judge, fuzzy_match=["a", "b"]) == 1
    assert asked == ["a", "b", "a, b"]


def test_without_a_judge_a_typed_comparison_is_made_and_named() -> None:
    asked = task(eval_types=["string_match"], reference_answers={"fuzzy_match": ["1h 35min"]})
    result = evaluate(asked, RecordedSession(), "It takes 95 minutes.")
    assert result.score == 1
    assert result.typed
    assert "typed comparison, no judge" in result.checks[0].reason


def test_a_judge_of_a_model_takes_a_plain_correct_only() -> None:
    replies = iter(["It is correct.", "incorrect", "partially correct", "hm"])
    judge = PromptJudge(lambda prompt: next(replies))
    assert [judge("q", "r", "a") for _ in range(4)] == [True, False, False, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5.", ["5", "."]),
        ("there are 5, or so", ["there", "are", "5", ",", "or", "so"]),
        ("$1,234.50 (5%)", ["$", "1,234.50", "(", "5", "%", ")"]),
        ("it's 5. yes", ["it", "'s", "5", ".", "yes"]),
        ('say "5"', ["say", "``", "5", "''"]),
        ("can't cannot", ["ca", "n't", "can", "not"]),
        ("a/b 5:30 x--y", ["a/b", "5:30", "x", "--", "y"]),
    ],
)
def test_answers_are_cut_into_words_as_by_nltk(text: str, words: list[str]) -> None:
    assert tokens(text) == tuple(words)


# Addresses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "given", "evaluation", "webarena", "copies"),
    [
        ("http://a/viewed", "http://a/viewed/", {}, 1, 1),
        ("http://a/viewed", "http://a/viewedasdf", {}, 1, 0),  # the copies compare exactly where no note stands
        ("http://a/viewed", "http://a/viewedasdf", {"url_note": "GOLD in PRED"}, 1, 1),
        ("http://a/v?s=1&p=2", "http://a/v?p=2&s=1&x=3", {"url_note": "GOLD in PRED"}, 1, 0),  # the copies know no keys
        ("http://a/v?s=1", "http://a/v?s=2", {"url_note": "GOLD in PRED"}, 0, 0),
        ("http://a/v", "http://b/?u=http://a/v", {"url_note": "GOLD in PRED"}, 0, 1),
        ("http://a/v |OR| http://a/w", "http://a/w", {}, 1, 1),
        ("http://a/v?s=1 |OR| http://a/v?s=2", "http://a/v?s=2", {"url_note": "GOLD in PRED"}, 1, 1),
        ("http://a/v", "about:blank", {}, 0, 0),
    ],
)
def test_addresses_score_as_in_each_release(
    reference: str, given: str, evaluation: Any, webarena: int, copies: int
) -> None:
    assert url(reference, given, **evaluation) == webarena
    assert url(reference, given, "rlvr", **evaluation) == url(reference, given, "lite", **evaluation) == copies


# Pages ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "contents", "webarena", "rlvr", "lite"),
    [
        ("Tom &amp; Jerry", {"must_include": ["tom & jerry"]}, 1, 0, 0),  # only WebArena resolves entities
        ("the cat sat", {"must_include": ["cat |OR| dog"]}, 1, 1, 1),
        ("a category", {"must_include": ["cat"]}, 1, 1, 0),
        ("15", {"must_include": ["5"]}, 1, 1, 0),  # no rule of one character on pages
        ("Open", {"exact_match": "open"}, 1, 1, 1),
        (" Open ", {"exact_match": "open"}, 1, 0, 0),
        ("", {"exact_match": "open"}, 0, 0, 0),
    ],
)
def test_pages_score_as_in_each_release(text: str, contents: Any, webarena: int, rlvr: int, lite: int) -> None:
    assert [page(text, contents, variant).score for variant in ("webarena", "rlvr", "lite")] == [webarena, rlvr, lite]


def test_lite_judges_pages_too() -> None:
    asked: list[str] = []
    judge = lambda question, reference, answer: asked.append(reference) is None  # noqa: E731
    assert page("text", {"fuzzy_match": ["a", "b"]}, "lite", judge).score == 1
    assert asked == ["a, b"]


def test_other_pages_are_opened_beside_the_agents_tab() -> None:
    session = RecordedSession("http://reddit.com/f/books/12/a-title/-/comment/3", "<p>hello</p>")
    target = {
        "url": "func:reddit_get_post_url('__last_url__')",
        "locator": "",
        "required_contents": {"must_include": ["hello"]},
    }
    assert evaluate(task(eval_types=["program_html"], program_html=[target]), session, "").score == 1
    assert session.visited == ["http://reddit.com/f/books/12/"]
    assert session.url == "http://reddit.com/f/books/12/a-title/-/comment/3"


MEMBERS = """<table><tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@ann</span></td>
<td class="col-max-role"><span>Owner</span></td></tr><tr><td data-label="Account">
<span class="gl-avatar-labeled-sublabel">@bob</span></td>
<td class="col-max-role"><span>Guest</span></td></tr></table>"""


@pytest.mark.parametrize(("account", "score"), [("bob", 1), ("eve", 0)])
def test_the_role_of_a_member_is_read_from_the_page(account: str, score: int) -> None:
    locator = f"func:gitlab_get_project_memeber_role(__page__, '{account}')"
    assert page(MEMBERS, {"exact_match": "guest"}, locator=locator).score == score


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("func:shopping_get_latest_order_url()", "the helper shopping_get_latest_order_url is given by nobody"),
        ("func:steal()", "the helper steal is unknown"),
        ("func:__import__('os').system('x')", "is no call of a helper"),
        ("func:reddit_get_post_url(open('x'))", "is no call of a helper"),
        ("func:reddit_get_post_url('a' + 'b')", "is no call of a helper"),
    ],
)
def test_helpers_are_called_by_name_or_not_at_all(text: str, complaint: str) -> None:
    result = page("x", {"must_include": ["x"]}, url=text)
    assert result.score == 0
    assert complaint in result.unsupported[0]


def test_helpers_of_the_caller_are_used() -> None:
    target = {
        "url": "func:shopping_get_latest_order_url()",
        "locator": "",
        "required_contents": {"must_include": ["x"]},
    }
    session = RecordedSession(page="x")
    helpers = {"shopping_get_latest_order_url": lambda page: "http://onestopmarket.com/orders/9"}
    assert evaluate(task(eval_types=["program_html"], program_html=[target]), session, "", helpers=helpers).score == 1
    assert session.visited == ["http://onestopmarket.com/orders/9"]


def test_a_locator_of_no_known_form_is_unsupported() -> None:
    result = page("x", {"must_include": ["x"]}, locator="lambda: document.title")
    assert result.score == 0
    assert result.unsupported


# Every public task ---------------------------------------------------------------------------------------------------

HELPERS = {
    "shopping_get_latest_order_url": lambda page: "http://onestopmarket.com/sales/order/view/order_id/9/",
    "shopping_get_sku_latest_review_author": lambda page, sku: page.html,
    "shopping_get_sku_latest_review_rating": lambda page, sku: page.html,
    "gitlab_get_project_memeber_role": lambda page, account: page.html,
}


def right_answer(evaluation: Evaluation, variant: str) -> str:
    """An answer that the references of a task allow."""
    references = evaluation.reference_answers
    if references is None:
        return ""
    if references.fuzzy_match == "N/A":
        return "N/A"
    if references.exact_match is not None:
        return references.exact_match
    listed = [*(references.must_include or ()), *(references.fuzzy_match or ())]
    return ", ".join(listed if variant == "webarena" else [one.split(" |OR| ")[0] for one in listed])


class RightPages(RecordedSession):
    """Every place of every page holds what a target asks of it, one target after the other."""

    def __init__(self, url: str, targets: tuple[PageTarget, ...]) -> None:
        super().__init__(url)
        self.texts = iter(targets)

    @property
    def next_text(self) -> str:
        wanted = next(self.texts).required_contents
        if wanted.exact_match is not None:
            return wanted.exact_match
        return ", ".join(one.split(" |OR| ")[0] for one in [*(wanted.must_include or ()), *(wanted.fuzzy_match or ())])

    def html(self) -> str:
        return self.next_text

    def visit(self, url: str) -> Visited:
        return Visited(url, 200, self.next_text)

    def locate(self, locator: str, url: str | None = None) -> str:
        return "" if locator.endswith(".click()") else self.next_text


SPOKEN = {
    "^16": "16 inches",
    "^24": "24in.",
    "170": "#170",
    "189": "000189",
    "180": "# 180",
    "rate": "Flat Rate - Fixed",
}
"""By a part of it: a text that fits a pattern."""


def spoken(value: Any) -> Any:
    """What an agent would say where a task's answer is a pattern, or has alternatives."""
    if isinstance(value, dict):
        return {key: spoken(one) for key, one in value.items()}
    if isinstance(value, str) and value.startswith("^"):
        return next((said for part, said in SPOKEN.items() if part in value), value.strip("^@?$"))
    return value


@needs_data
@pytest.mark.parametrize(
    ("name", "variant", "count"),
    [
        ("webarena_test.raw", "webarena", 812),
        ("rlvr_test_webarena.raw", "rlvr", 812),
        ("test_webarena_lite.raw", "lite", 165),
    ],
)
def test_on_every_public_task_the_right_end_scores_one_and_an_empty_one_nothing(
    name: str, variant: str, count: int
) -> None:
    recorded = json.dumps(json.loads((DATA / "webrl_htmls.json").read_text()), ensure_ascii=False)
    tasks = load_tasks(DATA / f"{name}.json")
    wrong, rewarded = [], []
    for one in tasks:
        assert isinstance(one.eval, Evaluation)
        end = (one.eval.reference_url or "http://x/").split(" |OR| ")[0]
        answer = right_answer(one.eval, variant)
        right = evaluate(one, RightPages(end, one.eval.program_html), answer, variant=variant, helpers=HELPERS)
        wrong += [one.task_id] * (right.score != 1)
        for answer_given in ("", None):
            empty = evaluate(one, RecordedSession("about:blank"), answer_given, variant=variant, helpers=HELPERS)
            rewarded += [one.task_id] * (empty.score != 0)
        assert evaluate(one, RecordedSession(one.start_urls[0], recorded), "N/A", variant=variant).score in (0, 1)
    assert len(tasks) == count
    assert (wrong, rewarded) == ([], [])


def test_scripts_of_a_target_run_on_the_agents_page_before_it_is_read() -> None:
    class Closed(RecordedSession):
        opened = False

        def locate(self, locator: str, url: str | None = None) -> str:
            self.opened = self.opened or locator == "document.querySelector('h3').click()"
            return "20" if self.opened else ""

    target = {
        "url": "last",
        "locator": "document.querySelector('input').value",
        "required_contents": {"exact_match": "20"},
    }
    for scripts, score in (["document.querySelector('h3').click()"], 1), ([], 0):
        page = {"eval_types": ["program_html"], "program_html": [{**target, "prep_actions": scripts}]}
        asked = read_task({"task_id": 1, "sites": ["map"], "intent": "i", "start_url": "__MAP__", "eval": page})
        assert evaluate(asked, Closed(), "").score == score


@needs_data
def test_an_early_stop_passes_two_tasks_where_its_words_are_graded_and_none_where_they_are_not() -> None:
    words = "Early stop: Reach max steps 5"
    passed: dict[bool, list[Any]] = {True: [], False: []}
    for one in load_tasks(DATA / "webarena_test.raw.json"):
        if isinstance(one.eval, Evaluation) and one.eval.eval_types == ("string_match",):
            for released in passed:
                score = evaluate(one, RecordedSession(), None, early_stop_text=words if released else None).score
                passed[released] += [one.task_id] * (score == 1)
    assert passed == {True: [77, 136], False: []}


@needs_data
def test_verified_tasks_are_graded_on_answers_and_last_addresses_and_name_what_is_missing() -> None:
    tasks = load_tasks(DATA / "webarena_verified_1.2.3.json")
    full = missing = 0
    for one in tasks:
        assert isinstance(one.eval, tuple)
        expected = one.eval[0].expected
        data = expected.get("retrieved_data")
        if isinstance(data, list):
            data = [spoken(item[0] if isinstance(item, list) else item) for item in data]
        answer = json.dumps(
            {"task_type": expected["task_type"].upper(), "status": expected["status"], "retrieved_data": data}
        )
        result = evaluate(one, RecordedSession(), answer)
        assert result.checks[0].score == 1, (one.task_id, result.checks[0])
        assert evaluate(one, RecordedSession(), "").score == evaluate(one, RecordedSession(), "N/A").score == 0
        full += len(one.eval) == 1
        missing += bool(result.unsupported)
        assert all(text.startswith("NetworkEventEvaluator: needs recorded traffic: ") for text in result.unsupported)
    assert full == 324
    assert 0 < missing <= 812 - 324


# Verified ------------------------------------------------------------------------------------------------------------


def response(expected: Any, schema: Any, given: Any, **more: Any) -> float:
    """The score of retrieved data."""
    check = {"evaluator": "AgentResponseEvaluator", "results_schema": {"type": "array", "items": schema}, **more}
    check["expected"] = {"task_type": "retrieve", "status": "SUCCESS", "retrieved_data": expected}
    asked = read_task({"task_id": 1, "sites": ["map"], "intent": "i", "start_urls": ["__MAP__"], "eval": [check]})
    answer = json.dumps({"task_type": "RETRIEVE", "status": "SUCCESS", "retrieved_data": given})
    return evaluate(asked, RecordedSession(), answer).score


@pytest.mark.parametrize(
    ("expected", "schema", "given", "score"),
    [
        (["Ann", "Bob"], {"type": "string"}, ["bob ", "ANN"], 1),
        (["Ann", "Bob"], {"type": "string"}, ["Ann"], 0),
        (["Ann", "Ann"], {"type": "string"}, ["Ann", "Bob"], 0),
        ([["A", "B"], "A"], {"type": "string"}, ["A", "B"], 1),  # the alternatives of one must leave room for the other
        ([1234.5], {"type": "number", "format": "currency"}, ["$1,234.50"], 1),
        ([6], {"type": "number"}, [7], 0),
        ([r"^#?\s*0*170$"], {"type": "string"}, ["#000170"], 1),
        ([r"^#?\s*0*170$"], {"type": "string"}, ["1700"], 0),
        ([1], {"type": "number"}, [True], 0),
        ([True], {"type": "boolean"}, ["yes"], 1),
        (["1hr 35min"], {"type": "string", "format": "duration"}, ["95 minutes"], 1),
        (["1.4km"], {"type": "string", "format": "distance"}, ["1400 m"], 1),
        (["May 31, 2023"], {"type": "string", "format": "date"}, ["2023-05-31"], 1),
        (["May"], {"type": "string", "format": "month"}, ["may"], 1),
        (["b, a"], {"type": "string", "format": "string_list"}, ["a,b"], 1),
        (["b, a"], {"type": "string", "format": "string_list"}, ["a, c"], 0),
        (['{"a": 1}'], {"type": "string", "format": "json"}, ['{ "a":1 }'], 1),
        (['{"a": 1}'], {"type": "string", "format": "json"}, ['{"a": 2}'], 0),
        ([{"n": 1}], {"type": "object", "properties": {"n": {"type": "number"}}}, [{"n": "1"}], 1),
        ([{"n": 1}], {"type": "object", "properties": {"n": {"type": "number"}}}, ["1"], 0),
        (
            [{"latitude": "40.44", "longitude": "-79.9"}],
            {"format": "coordinates"},
            [{"latitude": 40.44, "longitude": -79.9}],
            1,
        ),
    ],
)
def test_retrieved_data_is_compared_by_type(expected: Any, schema: Any, given: Any, score: int) -> None:
    assert response(expected, schema, given) == score


def test_order_counts_where_it_is_said_to() -> None:
    assert response(["a", "b"], {"type": "string"}, ["b", "a"], ordered=True) == 0
    assert response(["a", "b"], {"type": "string"}, ["a", "b"], ordered=True) == 1


@pytest.mark.parametrize(
    ("expected", "more", "given", "score"),
    [
        ({"url": "__REDDIT__/forums"}, {}, "http://reddit.com/forums/", 1),
        ({"url": "__REDDIT__/forums"}, {}, "http://reddit.com/forums?page=2", 0),
        (
            {"url": "__REDDIT__/forums"},
            {"ignored_query_params_patterns": ["page"]},
            "http://reddit.com/forums?page=2",
            1,
        ),
        ({"url": ["__REDDIT__/a", "__REDDIT__/b"]}, {}, "http://reddit.com/b", 1),
        ({"url": "^__REDDIT__/f/.*$"}, {}, "http://reddit.com/f/books", 1),
        ({"url": "__REDDIT__/s", "query_params": {"q": ["x "]}}, {}, "http://reddit.com/s?q=x", 1),
        ({"url": "__REDDIT__/s", "query_params": {"q": ["x"]}}, {}, "http://reddit.com/s?q=y", 0),
    ],
)
def test_a_page_that_was_to_be_opened_is_the_last_address(expected: Any, more: Any, given: str, score: int) -> None:
    check = {"evaluator": "NetworkEventEvaluator", "expected": expected, **more}
    asked = read_task({"task_id": 1, "sites": ["reddit"], "intent": "i", "start_urls": ["__REDDIT__"], "eval": [check]})
    assert evaluate(asked, RecordedSession(given), "").score == score


# Values --------------------------------------------------------------------------------------------------------------


def test_values_are_read_from_words() -> None:
    assert numbers("3 of 1,200, or -4.5") == [3, 1200, -4.5]
    assert numbers("three orders") == [3]
    assert money("$1,603.69 in all, 12 orders") == [1603.69]
    assert money("5 dollars") == money("5.00") == [5]
    assert durations("1 hour and 35 minutes or 1h 35m") == [5700, 5700]
    assert durations("2:05") == durations("02:05:00") == [7500]
    assert [str(day) for day in dates("3/2/22 and March 11th, 2023 and 2 May 2021 and 31/31/2020")] == [
        "2022-03-02", "2023-03-11", "2021-05-02",
    ]  # fmt: skip
    months = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
              "November", "December")  # fmt: skip
    for number, month in enumerate(months, 1):
        assert [day.month for day in dates(f"{month} 3, 2026 and 4 {month[:3]} 2025")] == [number, number]
    assert names("1. Ann,\n2. Bob and 'Carl'") == ["ann", "bob", "carl"]
    assert is_na("N/A.") and is_na("not possible") and not is_na("nap")
    assert read_one("number", "3 or 4") is None


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("7 min", "About 7 minutes", True),
        ("7 min", "7 minutes or 8 minutes", False),  # guesses do not pay
        ("7 min", "7", False),
        ("3 orders", "There were three orders in 2023", True),
        ("3 orders", "13 orders", False),
        ("$845.49 total spend", "$845.49", True),
        ("driving: 2min", "Walking: 16min, driving: 2 minutes", True),
        ("driving: 2min", "driving: 16min, walking: 2min", False),
        ("Yes", "yes, it is", True),
        ("No, it is open", "Yes, it is open", False),
        ("May 23 2023", "It was 5/23/2023.", True),
        ("N/A", "n/a", True),
        ("N/A", "5", False),
        ("N/A", "N/A 3", False),
        ("3", "N/A 3", False),
        ("It is comfortable", "customers say it's comfortable", True),
        ("It is comfortable", "comfortable " + "word " * 200, False),
        ("The order is A, B, C", "order: A, C, B", False),
    ],
)
def test_free_answers_are_compared_by_type(reference: str, answer: str, right: bool) -> None:
    assert agrees([reference], answer) == [right]


# Our own checks ------------------------------------------------------------------------------------------------------


def own(*checks: dict[str, Any]) -> Task:
    """A task with our own checks alone."""
    return task(spec={"template_id": "t", "checks": list(checks)})


@pytest.mark.parametrize(
    ("check", "answer", "score"),
    [
        ({"type": "number", "expected": 3}, "There are 3 of them.", 1),
        ({"type": "number", "expected": 3}, "3 or 4", 0),
        ({"type": "number", "expected": 3, "tolerance": 1}, "4", 1),
        ({"type": "number", "expected": 3}, "", 0),
        ({"type": "money", "expected": 12.5}, "$12.50", 1),
        ({"type": "money", "expected": "$12.50"}, "12.5 dollars", 1),
        ({"type": "duration", "expected": 300}, "5 min", 1),
        ({"type": "distance", "expected": "1.4km"}, "1,400 m", 1),
        ({"type": "date", "expected": "2026-06-15"}, "June 15, 2026", 1),
        ({"type": "names", "expected": ["Ann", "Bob"]}, "Bob and Ann", 1),
        ({"type": "names", "expected": ["Ann", "Bob"], "ordered": True}, "Bob and Ann", 0),
        ({"type": "names", "expected": ["Ann", "Bob"]}, "Ann, Bob, Carl", 0),
        ({"type": "yes_no", "expected": True}, "Yes.", 1),
        ({"type": "yes_no", "expected": False}, "Yes.", 0),
        ({"type": "text", "expected": "The Red Lamp"}, "red lamp", 1),
        ({"type": "text", "expected": "The Red Lamp"}, "red lamp shade", 0),
        ({"type": "text", "expected": "Sand"}, "Color: Sand", 1),
        ({"type": "text", "expected": "Sand"}, "Color: Sand, Red", 0),
        ({"type": "text", "expected": "Aria: A Song"}, "Aria: a song", 1),
        ({"type": "text", "expected": "(555) 866-7982"}, "5558667982", 1),
        ({"type": "text", "expected": "(555) 866-7982"}, "Phone: 555-866-7982", 1),
        ({"type": "text", "expected": "(555) 866-7982"}, "5558667983", 0),
        ({"type": "number", "expected": 3}, "3 ,987", 0),
        ({"type": "number", "expected": 3}, "3 .5", 0),
        ({"type": "number", "expected": 12}, "1,2", 0),
        ({"type": "number", "expected": 3987}, "3,987", 1),
        ({"type": "number", "expected": 3}, "3 products cost between $140 and $485", 1),
        ({"type": "number", "expected": 3}, "On 2026/06/15 there were 3.", 1),
        ({"type": "number", "expected": 19}, "nineteen", 1),
        ({"type": "number", "expected": 42}, "forty-two", 1),
        ({"type": "number", "expected": 2}, "forty two", 0),
        ({"type": "number", "expected": 20}, "twenty", 1),
        ({"type": "number", "expected": 99}, "ninety-nine", 1),
        ({"type": "number", "expected": 3}, "word " * 49 + "3", 1),
        ({"type": "number", "expected": 3}, "word " * 50 + "3", 0),
        ({"type": "names", "expected": "Ann, Bob"}, "Bob, Ann", 1),
        ({"type": "names", "expected": 12}, "12", 1),
        ({"type": "number", "expected": 3}, "N/A 3", 0),
        ({"type": "number", "expected": 3}, "3 " * 60, 0),  # a page that holds no other number
        ({"type": "date", "expected": "2026-06-15"}, "2026/06/15", 1),
        ({"type": "names", "expected": ["1", "3"], "ordered": True}, "1 open, 3 closed", 1),
        ({"type": "names", "expected": ["1", "3"], "ordered": True}, "3, 1", 0),
        ({"type": "names", "expected": ["1", "3"], "ordered": True}, "1 or 2 open, 3 closed", 0),
        ({"type": "names", "expected": ["1", "3"], "ordered": True}, "1, 3 " + "word " * 60, 0),
        ({"type": "na"}, "N/A 3", 0),
        ({"type": "na"}, "N/A or 3", 0),
        ({"type": "na"}, "N/A, there is no order 3", 1),
        ({"type": "na"}, "N/A", 1),
        ({"type": "number", "expected": 3}, "N/A", 0),
    ],
)
def test_answers_of_our_own_tasks_are_one_value(check: dict[str, Any], answer: str, score: int) -> None:
    assert evaluate(own({"kind": "answer", **check}), RecordedSession(), answer).score == score
    assert evaluate(own({"kind": "answer", **check}), RecordedSession(), None).score == 0


def fill(db: sqlite3.Connection, seed: int) -> None:
    """Two posts and a user."""
    db.executemany("INSERT INTO post VALUES (?, ?, ?)", [(1, "a", seed), (2, "b", seed)])
    db.execute("INSERT INTO user VALUES ('ann')")


SCHEMA = (
    "CREATE TABLE post (id INTEGER PRIMARY KEY, title TEXT, votes INTEGER); CREATE TABLE user (name TEXT PRIMARY KEY);"
)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    store = Store("tiny", SCHEMA, fill)
    monkeypatch.setitem(SITES, "tiny", Site("tiny", "Tiny", "tiny.com", "/", store, "ann", []))
    found = Web(content=4)
    found.database(SITES["tiny"])
    yield found
    found.close()
    original.cache_clear()


VOTED = {
    "kind": "db_check",
    "site": "tiny",
    "query": "SELECT id, votes FROM post ORDER BY id",
    "rows": [[2, 4], [1, 5]],
}


def test_rows_at_the_end_are_checked(web: Web) -> None:
    assert evaluate(own(VOTED), RecordedSession(), None, web=web).score == 0
    web.databases["tiny"].execute("UPDATE post SET votes = votes + 1 WHERE id = 1")
    assert evaluate(own(VOTED), RecordedSession(), None, web=web).score == 1
    assert evaluate(own({**VOTED, "ordered": True}), RecordedSession(), None, web=web).score == 0
    assert evaluate(own(VOTED), RecordedSession(), None).unsupported  # without the episode's databases


@pytest.mark.parametrize(
    ("change", "allow", "score"),
    [
        ("SELECT 1", {}, 1),
        ("UPDATE clock SET ticks = 5", {}, 1),
        ("INSERT INTO session (token, site, user) VALUES ('t', 'tiny', 'ann')", {}, 1),
        ("UPDATE post SET votes = 9 WHERE id = 1", {}, 0),
        ("UPDATE post SET votes = 9 WHERE id = 1", {"post": None}, 1),
        ("UPDATE post SET votes = 9 WHERE id = 1", {"post": "id = 1"}, 1),
        ("UPDATE post SET votes = 9 WHERE id = 2", {"post": "id = 1"}, 0),
        ("DELETE FROM post WHERE id = 2", {"post": "id = 1"}, 0),
        ("INSERT INTO post VALUES (3, 'c', 0)", {"post": "id > 2"}, 1),
        ("INSERT INTO post VALUES (3, NULL, 0)", {"post": "title = 'c'"}, 0),
        ("DELETE FROM user", {"post": None}, 0),
        ("UPDATE post SET votes = 9 WHERE id = 1", {"post(votes)": "id = 1"}, 1),
        ("UPDATE post SET title = 'c' WHERE id = 1", {"post(votes)": "id = 1"}, 0),
        ("UPDATE post SET title = 'c' WHERE id = 1", {"post(votes)": "id = 2", "post": "id = 1"}, 1),
        ("UPDATE post SET votes = 9 WHERE id = 2", {"post(votes)": "id = 1"}, 0),
        ("DELETE FROM post WHERE id = 1", {"post(votes)": "id = 1"}, 0),
        ("UPDATE post SET votes = votes", {}, 1),  # what is as it was counts as unchanged
        ("CREATE TABLE extra (a)", {"post": None}, 0),
    ],
)
def test_side_effects_are_caught(web: Web, change: str, allow: dict[str, str | None], score: int) -> None:
    web.databases["tiny"].execute(change)
    guard = own({"kind": "db_guard", "allow": {"tiny": allow}})
    assert evaluate(guard, RecordedSession(), None, web=web).score == score


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM post",
        "UPDATE post SET votes = 0 RETURNING id",
        "ATTACH 'x' AS y",
        "PRAGMA writable_schema = 1",
        "DROP TABLE post",
        "SELECT load_extension('x')",
        "SELECT nothing FROM nowhere",
        "CREATE TABLE a (b)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    ],
)
def test_a_query_can_only_read_and_ends(web: Web, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneiro_web.grading.database.MOST_STEPS", 200)
    db = web.databases["tiny"]
    with pytest.raises(WebError, match="of a task fails"):
        query(db, sql)
    assert db.execute("SELECT count(*) FROM post").fetchone()[0] == 2
    db.execute("UPDATE post SET votes = 0")  # the site may write again


def test_the_score_is_the_product_and_every_check_is_told(web: Web) -> None:
    asked = own({"kind": "answer", "type": "number", "expected": 2}, VOTED, {"kind": "db_guard"})
    result = evaluate(asked, RecordedSession(), "2", web=web)
    assert [check.name for check in result.checks] == ["answer.number", "db_check", "db_guard"]
    assert [check.score for check in result.checks] == [1, 0, 1]
    assert result.score == 0
    assert all(check.reason and "\n" not in check.reason for check in result.checks)
    assert Result(()).score == 0


def test_unknown_variants_and_sites_are_named(web: Web) -> None:
    with pytest.raises(WebError, match="no evaluators 'webarna'; did you mean 'webarena'"):
        evaluate(own(VOTED), RecordedSession(), None, variant="webarna")
    with pytest.raises(WebError, match="'nowhere', which is no site of ours"):
        evaluate(own({**VOTED, "site": "nowhere"}), RecordedSession(), None, web=web)
