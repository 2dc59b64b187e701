"""WebArena's containers, up to their doors: recorded pages behind real ports in their place, in both browsers."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oneiro_web.benchmarks.webarena import RemoteWeb, reset_sites
from oneiro_web.browsers.text.document import Document
from oneiro_web.browsers.text.locator import evaluate as locate
from oneiro_web.browsers.text.state import State
from oneiro_web.browsers.text.styles import Styles
from oneiro_web.env import WebConfig, WebEnv
from oneiro_web.errors import SessionLost, WebError
from oneiro_web.sites.web import NOWHERE
from oneiro_web.tasks import Evaluation
from oneiro_web.urls import Places
from web.tests.containers import LANDING, SHOWN, SITES, TASKS, Container, base_urls, on_page, raw, string
from web.tests.test_grading import DATA, needs_data


def world_of(task: Any, folder: Path, containers: dict[str, Container], **settings: Any) -> WebEnv:
    file = folder / f"{len(list(folder.iterdir()))}.json"  # files are remembered by their names
    file.write_text(json.dumps(task))
    return WebEnv(
        WebConfig(task_file=str(file), **{"base_urls": base_urls(containers), "storage": str(folder), **settings})
    )


def number_of(text: str, observation: str) -> str:
    match = re.search(rf"\[(\d+)\] {text}", observation)
    assert match is not None, observation
    return match[1]


def finish(world: WebEnv, answer: str, click: str = "") -> float:
    """Play an episode to its grade: perhaps a click, and an answer."""
    observation, _ = world.reset(seed=0, options={"split": "eval"})
    assert "127.0.0.1" not in observation
    if click:
        world.step(f"click [{number_of(click, observation)}]")
    return world.step(f"stop [{answer}]")[1]


@pytest.fixture(params=["text", "chromium"])
def browser(request: pytest.FixtureRequest) -> str:
    if request.param == "chromium":
        request.getfixturevalue("chromium")
    return str(request.param)


def test_log_ins_reach_the_sites(browser: str, containers: dict[str, Container], tmp_path: Path) -> None:
    for log_in, title in ("shopping", "Emma Lopez"), ("", "Customer Login"):
        task = raw("__SHOPPING__/customer/account/", log_in, **string(exact_match="x"))
        world = world_of(task, tmp_path, containers, browser=browser)
        assert title in world.reset(seed=0)[0]
        world.close()


def test_every_evaluator_grades_recorded_pages(browser: str, containers: dict[str, Container], tmp_path: Path) -> None:
    scores = {}
    # What only reads the answer or asks the shop itself is the same in every browser.
    tasks = TASKS if browser == "text" else {name: TASKS[name] for name in SHOWN}
    for name, (task, answer, click) in tasks.items():
        right = world_of(task, tmp_path, containers, browser=browser)
        other = re.sub(r'("must_include": )\[".*?"\]', r'\1["nowhere"]', json.dumps(task))
        wrong = world_of(json.loads(other), tmp_path, containers, browser=browser)
        scores[name] = finish(right, answer, click), finish(wrong, "nonsense")
        right.close()
        wrong.close()
    assert scores == dict.fromkeys(tasks, (1.0, 0.0))


@pytest.mark.usefixtures("chromium")
def test_scripts_of_a_task_open_what_a_page_hides(containers: dict[str, Container], tmp_path: Path) -> None:
    script = "document.querySelector('[data-index=\"actions\"]').querySelector('.admin__collapsible-title').click()"
    target = on_page("last", "document.querySelector('[name=\"discount_amount\"').value", exact_match="20")[0]
    for scripts, score in ([script], 1.0), ([], 0.0):
        task = raw("__SHOPPING_ADMIN__/promo", program_html=[{**target, "prep_actions": scripts}])
        world = world_of(task, tmp_path, containers, browser="chromium")
        assert finish(world, "") == score
        world.close()


def test_changes_stay_until_the_reset_command_is_run(
    browser: str, containers: dict[str, Container], tmp_path: Path
) -> None:
    program = tmp_path / "reset.py"
    program.write_text(
        "import sys, urllib.request\nassert sys.argv[2:] == ['reddit']\n"
        "urllib.request.urlopen(sys.argv[1] + '/reset', data=b'-')"
    )
    comment = "document.querySelector('.comment').outerText"
    task = raw(
        "__REDDIT__/f/books/42/hobbit",
        program_html=on_page("func:reddit_get_post_url('__last_url__')", comment, must_include=["Lovely"]),
    )
    forum = containers["reddit"]
    live = world_of(task, tmp_path, containers, browser=browser)
    observation, _ = live.reset(seed=0)
    live.step(f"type [{number_of('textbox', observation)}] [Lovely] [1]")
    assert live.step("stop []")[1] == 1.0
    assert finish(live, "") == 1.0, "nobody has reset the site: the comment is still there"
    reset = world_of(
        task, tmp_path, containers, browser=browser, reset_command=f"{sys.executable} {program} {forum.address}"
    )
    assert (finish(reset, ""), forum.resets) == (0.0, 1)
    live.close()
    reset.close()


def test_an_episode_whose_sites_cannot_be_reset_is_lost_in_one_line() -> None:
    with pytest.raises(SessionLost, match=r"^reset_command failed with 3: no disk$"):
        reset_sites(f"{sys.executable} -c \"import sys; print('no disk'); sys.exit(3)\"", ["reddit"])
    with pytest.raises(WebError, match=r"^reset_command cannot be run"):
        reset_sites("no-such-program", [])


def test_a_reset_command_may_leave_servers_running_and_say_anything() -> None:
    begun = time.monotonic()
    reset_sites("sh -c 'sleep 30 & printf \\\\377'", [])
    assert time.monotonic() - begun < 25


@pytest.mark.usefixtures("chromium")
def test_parts_of_a_page_are_asked_for_at_the_same_time(containers: dict[str, Container], tmp_path: Path) -> None:
    world = world_of(raw("__MAP__", **string(exact_match="x")), tmp_path, containers, browser="chromium")
    world.reset(seed=0)
    assert not containers["map"].meeting.broken
    world.close()


def test_the_shop_that_does_not_answer_is_named(containers: dict[str, Container], tmp_path: Path) -> None:
    task = raw(
        "__SHOPPING__",
        program_html=on_page("last", "func:shopping_get_sku_latest_review_author('B99')", must_include=["x"]),
    )
    world = world_of(task, tmp_path, containers)
    world.reset(seed=0)
    failed = world.step("stop []")[4]["failed"]
    assert failed == ["the shop's REST interface gives no answer to V1/products/B99/reviews (404)"]
    world.close()


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        (raw("__MAP__", **string(sounds_like=["x"])), "reference_answers.sounds_like is no known kind of reference"),
        (raw("__MAP__", program_html=on_page("func:f()", "", must_include=["x"])), "'func:f()' calls no helper"),
        (raw("__MAP__", program_html=on_page("last", "lambda: x", must_include=["x"])), "locator 'lambda: x' is of no"),
        (raw("__MAP__", program_html=on_page("last", "", has=["x"])), "required_contents has no known kind in ['has']"),
        (raw("__MAP__", eval_types=["page_image"]), "eval.eval_types.0"),
        ({**raw("__MAP__"), "eval": [{"evaluator": "NetworkEventEvaluator", "expected": {"ip": 1}}]}, "ip is not"),
        (raw("__MAP__", "gitlab", **string(exact_match="x")), "begins logged in at gitlab; say storage=FOLDER"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_refused_in_one_line(
    task: Any, complaint: str, containers: dict[str, Container], tmp_path: Path
) -> None:
    with pytest.raises(WebError, match=re.escape(complaint)) as refused:
        world_of(task, tmp_path, containers, storage="").reset(seed=0)
    assert "\n" not in str(refused.value)


def test_sites_without_an_address_are_named_and_can_be_left_out(
    containers: dict[str, Container], tmp_path: Path
) -> None:
    tasks = [raw(f"__{site.upper()}__", **string(exact_match="x")) for site in ("map", "wikipedia")]
    only_map = {"map": containers["map"].address}
    with pytest.raises(WebError, match=r"tasks on wikipedia; give its address in base_urls, or say which sites="):
        world_of(tasks, tmp_path, containers, base_urls=only_map)
    assert len(world_of(tasks, tmp_path, containers, base_urls=only_map, sites=("map",)).tasks) == 1
    assert len(world_of(tasks, tmp_path, containers, sites=("wikipedia",)).tasks) == 1


def test_a_file_is_a_test_in_its_order_unless_it_is_split_by_templates(
    containers: dict[str, Container], tmp_path: Path
) -> None:
    tasks = [{**raw("__MAP__", **string(exact_match="x")), "task_id": n, "intent_template_id": n} for n in range(40)]
    whole = world_of(tasks, tmp_path, containers)
    keys = [whole.peek(seed, "eval")["key"] for seed in range(80)]
    assert len({*keys}) == 40 and keys[:40] == keys[40:]
    with pytest.raises(WebError, match="task_file is a test; to train on it say file_split=templates"):
        whole.peek(0, "train")
    split = world_of(tasks, tmp_path, containers, file_split="templates")
    trained, tested = ({split.peek(seed, name)["key"] for seed in range(40)} for name in ("train", "eval"))
    assert trained and tested and not trained & tested and len(trained | tested) == 40


def test_only_named_backends_are_reached_beside_the_sites(containers: dict[str, Container]) -> None:
    places, router = Places({"map": containers["map"].address}), containers["wikipedia"].address
    assert RemoteWeb(places).request("GET", f"{router}{LANDING}") is NOWHERE
    assert RemoteWeb(places, backends=[router]).request("GET", f"{router}{LANDING}").status == 200
    with pytest.raises(WebError, match="is no web address"):
        RemoteWeb(places, backends=["10.0.0.5"])


@needs_data
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("webarena_test.raw", 812), ("test_webarena_lite.raw", 165), ("webarena_verified_1.2.3", 812),
        ("webarena_verified_hard_1.2.3", 258),
    ],
)  # fmt: skip
def test_every_public_task_can_be_played_on_containers(name: str, count: int) -> None:
    bases = {site: f"http://10.0.0.5:{7000 + number}" for number, site in enumerate(SITES)}
    bases["shopping_admin"] += "/admin"
    world = WebEnv(WebConfig(task_file=str(DATA / f"{name}.json"), base_urls=bases))
    assert len({world.peek(seed, "eval")["key"] for seed in range(count)}) == len(world.tasks) == count
    web, blank = RemoteWeb(Places(bases)), Document("<p>x</p>", 10)
    for task in world.tasks:
        targets = task.eval.program_html if isinstance(task.eval, Evaluation) else ()
        visited = [target.url for target in targets if target.url.startswith("http")]
        for url in [*task.start_urls, *visited]:
            served = web.target(url)
            assert served is not None and any(served.startswith(base) for base in bases.values()), url
        for target in targets:
            for script in [target.locator, *target.prep_actions]:
                if script and not script.startswith("func:"):
                    locate(script, blank, State(), Styles(()))  # raises where the text browser does not know its form
