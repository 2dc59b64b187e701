"""Public task files load as they are; damaged ones are named in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oneiro_web.errors import WebError
from oneiro_web.tasks import AnswerCheck, DatabaseGuard, Evaluation, Task, load_tasks, read_task
from oneiro_web.urls import Places

DATA = Path(__file__).parents[3] / "shared" / "data" / "webarena"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs the WebArena files in ../shared/data")

STRING = {
    "eval_types": ["string_match"],
    "reference_answers": {"must_include": ["5"]},
    "reference_url": "",
    "program_html": [],
}


def raw(**changes: Any) -> dict[str, Any]:
    """A task in WebArena's format."""
    return {
        "sites": ["gitlab", "reddit"], "task_id": 7, "require_login": True,
        "storage_state": "./.auth/gitlab.reddit_state.json", "start_url": "__GITLAB__/a |AND| __REDDIT__",
        "geolocation": None, "intent_template": "count {{what}}", "instantiation_dict": {"what": "stars"},
        "intent": "count stars", "require_reset": False, "eval": STRING, "intent_template_id": 3, **changes,
    }  # fmt: skip


@needs_data
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("webarena_test.raw", 812), ("rlvr_test_webarena.raw", 812), ("test_webarena_lite.raw", 165),
        ("webarena_verified_1.2.3", 812), ("webarena_verified_hard_1.2.3", 258),
    ],
)  # fmt: skip
def test_every_public_task_loads(name: str, count: int) -> None:
    tasks = load_tasks(DATA / f"{name}.json")
    assert len(tasks) == len({task.task_id for task in tasks}) == count
    for task in tasks:
        assert all(url.startswith("http://") for url in task.start_urls)
        assert {*task.log_ins} <= {"shopping", "shopping_admin", "reddit", "gitlab"}
        assert isinstance(task.eval, Evaluation) == ("raw" in name)


@needs_data
def test_the_published_counts_hold() -> None:
    tasks = load_tasks(DATA / "webarena_test.raw.json")
    kinds = [task.eval.eval_types for task in tasks if isinstance(task.eval, Evaluation)]
    assert kinds.count(("string_match",)) == 325
    assert kinds.count(("program_html",)) == 282
    assert kinds.count(("url_match",)) == 66
    assert sum(len(task.start_urls) > 1 for task in tasks) == 5
    assert sum(not task.log_ins for task in tasks) == 128


def test_placeholders_tabs_and_log_ins_are_read_and_other_fields_kept() -> None:
    places = Places({"gitlab": "http://127.0.0.1:8023/", "reddit": "http://127.0.0.1:9999"})
    task = read_task(raw(own_field={"x": "__REDDIT__/f"}), places)
    assert task.start_urls == ("http://127.0.0.1:8023/a", "http://127.0.0.1:9999")
    assert task.log_ins == ("gitlab", "reddit")
    assert task.model_extra is not None
    assert task.model_extra["own_field"] == {"x": "http://127.0.0.1:9999/f"}
    assert task.model_extra["require_login"] is True


def test_a_site_without_an_address_is_asked_for() -> None:
    with pytest.raises(WebError, match="task 7: needs the site reddit; give its address"):
        read_task(raw(), Places({"gitlab": "http://127.0.0.1:8023"}))


def test_our_own_tasks_carry_typed_checks_and_survive_json() -> None:
    checks = [
        {"kind": "answer", "type": "money", "expected": 12.5},
        {"kind": "db_guard", "allow": {"shopping": {"cart": None}}},
        {"kind": "db_check", "site": "shopping", "query": "SELECT 1", "rows": [[1]]},
    ]
    spec = {"template_id": "shop-price", "slots": {"product": "Lamp"}, "skills": ["search"], "oracle_length": 4}
    task = read_task(raw(eval=None, spec={**spec, "checks": checks}))
    assert task.spec is not None
    assert task.spec.checks[0] == AnswerCheck(type="money", expected=12.5)
    assert isinstance(task.spec.checks[1], DatabaseGuard)
    assert Task.model_validate_json(task.model_dump_json()) == task


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sites": []}, "sites"),
        ({"intent": None}, "intent"),
        ({"start_url": 5}, "start_urls"),
        ({"storage_state": "state.txt"}, "storage_state 'state.txt' names no sites"),
        ({"eval": {**STRING, "eval_types": ["magic"]}}, "eval.eval_types.0"),
        ({"eval": {**STRING, "reference_answers": None}}, "eval: string_match has no reference_answers"),
        ({"eval": {**STRING, "eval_types": ["url_match"]}}, "eval: url_match has no reference_url"),
        ({"eval": {**STRING, "eval_types": ["program_html"]}}, "eval: program_html has no targets"),
        ({"eval": None}, "has nothing to be graded by"),
        ({"eval": [{"evaluator": "Magic", "expected": {}}]}, "eval.0.evaluator"),
        ({"spec": {"template_id": "a", "checks": [{"kind": "magic"}]}}, "spec.checks.0"),
        ({"spec": {"template_id": "a", "checkz": []}}, "spec.checkz"),
    ],
)
def test_a_damaged_task_is_named_in_one_line(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WebError) as caught:
        read_task(raw(**changes), where="tasks.json")
    message = str(caught.value)
    assert message.startswith("tasks.json: task 7: ") and complaint in message and "\n" not in message


@pytest.mark.parametrize("text", [b"{", b"\xff", b"[3]", b'["a"]', b"[" * 100_000])
def test_a_damaged_file_is_named_in_one_line(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    file.write_bytes(text)
    with pytest.raises(WebError, match=r"tasks\.json") as caught:
        load_tasks(file)
    assert "\n" not in str(caught.value)


def test_one_task_alone_is_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "7.json"
    file.write_text(json.dumps(raw()))
    assert [task.task_id for task in load_tasks(file)] == [7]
    with pytest.raises(WebError, match="not readable"):
        load_tasks(tmp_path / "8.json")
