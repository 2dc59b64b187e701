"""Tasks that grow from failures: operators, filters, gates, and a generator model that is not believed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.sampling.server import ServerConfig
from oneiro.systems.webrl.curriculum.growth import Curriculum, CurriculumSettings, OperatorShares
from oneiro.systems.webrl.curriculum.operators import (
    draw_task,
    match_templates,
    move_nearer,
    paraphrase,
    pass_gates,
    resolve,
    task_key,
)
from oneiro_web import validate
from oneiro_web.env import WebConfig, chosen_templates, contents_in
from oneiro_web.plugin import WebWorld
from oneiro_web.tasks import AnswerCheck, Task
from oneiro_web.templates.registry import TEMPLATES

NAMES = ("map/phone", "map/hours", "map/show-place", "gitlab/star", "gitlab/status")
CONFIG = WebConfig(max_actions=12)


def task_of(name: str, number: int = 0) -> Task:
    found = draw_task(TEMPLATES[name], generator("test task", number))
    assert found is not None
    return found


def curriculum(tasks: int = 4, names: tuple[str, ...] = NAMES, **settings: object) -> Curriculum:
    chosen = CurriculumSettings(tasks=tasks, **{"gates": "oracle"} | settings)  # type: ignore[arg-type]
    return Curriculum(chosen, [TEMPLATES[name] for name in names], CONFIG, seed=1)


@pytest.fixture
def world() -> Iterator[WebWorld]:
    made = WebWorld(CONFIG)
    yield made
    made.close()


def test_drawn_tasks_are_on_training_content() -> None:
    for number in range(5):
        task = task_of("map/phone", number)
        assert task.spec is not None and task.spec.content in contents_in("train")
        assert task.spec.content not in contents_in("eval")


def test_every_operator_gives_another_task_that_the_oracle_can_do(world: WebWorld) -> None:
    made, seed = curriculum(), task_of("map/phone")
    rng = generator("operators")
    assert seed.spec is not None
    for name in ("resample", "sibling", "simplify", "paraphrase"):
        found = made.apply(name, seed, rng, world)
        assert found is not None, name
        assert task_key(found) != task_key(seed)
        assert found.sites == seed.sites
        assert pass_gates(found, world, "oracle") is not None
    said = paraphrase(seed, rng)
    assert said is not None and said.spec == seed.spec and said.intent != seed.intent
    sibling = made.apply("sibling", seed, rng, world)
    assert sibling is not None and sibling.spec is not None and sibling.spec.template_id in NAMES[1:3]


def test_a_nearer_task_begins_on_the_oracles_next_page_and_takes_fewer_actions(world: WebWorld) -> None:
    task = task_of("map/phone")
    near = move_nearer(task, world)
    assert near is not None and near.start_urls != task.start_urls and near.spec == task.spec
    assert pass_gates(near, world, "all") == 2 < validate.play(world, "oracle", task).actions
    assert move_nearer(near, world) is None
    made = curriculum()  # how long a template's tasks are is not learned from the rest of a way
    assert made._refusal(near, set(), world) is None and made.lengths == {}
    assert made._refusal(task, set(), world) is None and made.lengths["map/phone"] > 2
    world.reset(seed=0, options={"task": near})
    names = [node.name for node in world.page.nodes.values()]
    assert task.spec is not None and str(next(iter(task.instantiation_dict.values()))) in names


def test_longer_and_shorter_siblings_are_told_apart_by_their_oracles(world: WebWorld) -> None:
    made = curriculum(names=("map/phone", "map/nearest-time"))
    harder = made.apply("complicate", task_of("map/phone"), generator("c"), world)
    assert harder is not None and harder.intent_template_id == "map/nearest-time"
    assert made.apply("complicate", task_of("map/nearest-time"), generator("c"), world) is None
    assert made.lengths["map/phone"] < made.lengths["map/nearest-time"]


def test_without_gates_no_task_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebWorld, "reset", None)  # a gate would play in the world, and raise
    assert len(curriculum(gates="none", choose="random").grow(1).tasks) == 4
    with pytest.raises(TypeError):
        curriculum(choose="random").grow(1)


def test_gates_refuse_what_cannot_be_done_and_what_needs_no_doing(world: WebWorld) -> None:
    task = task_of("gitlab/star")
    assert pass_gates(task, world, "all") == 4
    assert task.spec is not None
    wrong = task.spec.model_copy(update={"slots": {**task.spec.slots, "project": "nobody/nothing"}})
    assert pass_gates(task.model_copy(update={"spec": wrong}), world, "all") is None
    # Nothing is asked but that nothing changes: whoever stops at once has done it.
    idle = task.spec.model_copy(update={"checks": (AnswerCheck(type="na"),)})
    assert pass_gates(task.model_copy(update={"spec": idle}), world, "all") is None


def test_growth_keeps_new_tasks_only_and_balances_sites() -> None:
    made = curriculum(tasks=6)
    failed = [task_of("map/phone"), task_of("gitlab/star")]
    made.note(0, failed, [False, False])
    made.note(0, [task_of("map/hours")], [True])
    assert [task for _, task in made.failures] == failed
    grown = made.grow(1)
    keys = [task_key(task) for task in grown.tasks]
    assert len(set(keys)) == 6 and not set(keys) & {task_key(task) for task in failed}
    assert [task.sites[0] for task in grown.tasks].count("map") == 3
    assert grown.counts["kept"] == 6


def test_random_tasks_are_new_ones_of_all_templates_whatever_failed() -> None:
    made = curriculum(tasks=24, choose="random")
    failed = [task_of("map/phone", number) for number in range(3)]
    made.note(0, failed, [False] * 3)
    grown = made.grow(1)
    assert set(grown.origins) == {"new"} and grown.counts["kept"] == 24
    keys = {task_key(task) for task in grown.tasks}
    assert len(keys) == 24 and not keys & {task_key(task) for task in failed}
    assert {task.intent_template_id for task in grown.tasks} == set(NAMES)


def test_few_first_tasks_are_of_every_site_in_proportion_to_its_templates() -> None:
    templates = [one for one in chosen_templates((), (), "composed") if not one.held_out]
    made = Curriculum(CurriculumSettings(gates="none"), templates, CONFIG, seed=1)
    tasks = made.initial(60)
    assert len({task.intent_template_id for task in tasks}) == 60
    drawn = Counter(task.sites[0] for task in tasks)
    for site, count in Counter(template.site for template in templates).items():
        assert abs(drawn[site] / 60 - count / len(templates)) < 0.15 and drawn[site]


def test_a_phase_has_tasks_of_each_site_in_proportion_to_its_templates() -> None:
    names = ("map/phone", "map/hours", "map/show-place", "gitlab/star")
    grown = curriculum(tasks=12, names=names, choose="random", gates="none").grow(1)
    assert Counter(task.sites[0] for task in grown.tasks) == {"map": 9, "gitlab": 3}


def test_learnable_tasks_come_from_templates_that_are_solved_now_and_then() -> None:
    names = ("map/phone", "map/hours", "gitlab/star")
    made = curriculum(tasks=12, choose="learnable", names=names)
    phones, hours = ([task_of(name, number) for number in range(8)] for name in names[:2])
    made.note(0, phones + hours * 12, [0.5] * 8 + [0.0] * 96)
    # (4 + .5) / (8 + 1) and (0 + .5) / (96 + 1); nobody tried the third
    assert made.learnability("map/phone") == made.learnability("gitlab/star") == 0.25
    assert made.learnability("map/hours") == pytest.approx(0.5 / 97 * 96.5 / 97)
    again = curriculum(tasks=12, choose="learnable", names=names)
    again.restore(made.state())
    assert again.solved == made.solved
    grown = [task.intent_template_id for task in again.grow(1).tasks]
    assert grown.count("map/phone") > grown.count("map/hours")
    again.note(1, phones[:1], [1.0])  # the past counts half: 8 / 2 + 1 tasks, 4 / 2 + 1 solved
    assert again.solved["map/phone"] == [5, 3] and again.solved["map/hours"] == made.solved["map/hours"]


def test_no_task_of_a_test_split_is_ever_grown() -> None:
    made = curriculum(tasks=3, names=("map/phone", "map/hours"))
    made.note(0, [task_of("map/phone")], [False])
    tested = made.grow(1).tasks
    again = curriculum(tasks=3, names=("map/phone", "map/hours"))
    again.test_keys = frozenset(map(task_key, tested))
    again.note(0, [task_of("map/phone")], [False])
    grown = again.grow(1)
    assert not {task_key(task) for task in grown.tasks} & again.test_keys
    assert grown.counts["test overlap"] >= 3


def test_the_critics_band_selects_and_is_widened_only_where_too_few_are_left() -> None:
    made = curriculum(tasks=3, names=("map/phone", "map/hours"), tries=4)
    made.note(0, [task_of("map/phone")], [False])
    said = iter([0.9, 0.05, 0.75] + [0.04, 0.5] * 50)
    grown = made.grow(1, lambda tasks: [next(said) for _ in tasks])
    assert grown.values == [0.05, 0.75, 0.5] and not grown.widened
    assert grown.counts["outside the band"] == 2
    other = curriculum(tasks=3, names=("map/phone", "map/hours"), tries=2)
    other.note(0, [task_of("map/phone")], [False])
    far = iter(np.linspace(0.99, 0.8, 200))
    widened = other.grow(1, lambda tasks: [float(next(far)) for _ in tasks])
    assert widened.widened and len(widened.tasks) == 3
    assert sorted(widened.values, reverse=True) != widened.values  # the nearest to the band come first


def test_the_same_state_grows_the_same_tasks_after_a_way_through_json() -> None:
    made = curriculum(tasks=3)
    made.note(0, [task_of("map/phone"), task_of("gitlab/star")], [False, False])
    copy = curriculum(tasks=3)
    copy.restore(json.loads(json.dumps(made.state())))
    first, second = made.grow(2), copy.grow(2)
    assert [t.model_dump() for t in first.tasks] == [t.model_dump() for t in second.tasks]
    assert made.state() == copy.state()


def test_without_templates_one_line_says_so() -> None:
    with pytest.raises(OneiroError, match="no templates"):
        Curriculum(CurriculumSettings(), [], CONFIG)


class RecordingDraws:
    """A generator that notes the chances it is given and takes the first."""

    def __init__(self, takes: int = 0) -> None:
        self.chances: list[list[float]] = []
        self.takes = takes

    def choice(self, count: int, p: np.ndarray) -> int:
        assert len(p) == count
        self.chances.append(p.tolist())
        return min(self.takes, count - 1)


def test_a_failure_weighs_half_for_each_phase_since_and_operators_weigh_their_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = curriculum()
    for phase, number in ((0, 0), (2, 1), (3, 2)):
        made.note(phase, [task_of("map/phone", number), task_of("gitlab/star", number)], [0.0, 0.0])
    made.note(3, [task_of("map/hours")], [0.25])  # one attempt in four: no failure
    applied: list[tuple[str, Task]] = []
    monkeypatch.setattr(made, "apply", lambda name, task, rng, world: applied.append((name, task)))
    for takes in (0, 2):
        draws = RecordingDraws(takes)
        made._candidate(3, "map", draws, [], None)  # type: ignore[arg-type]
        assert draws.chances[0] == pytest.approx([0.125 / 1.625, 0.5 / 1.625, 1 / 1.625])
        assert draws.chances[1] == pytest.approx([0.4, 0.2, 0.2, 0.1, 0.1])
    assert applied == [("resample", task_of("map/phone", 0)), ("simplify", task_of("map/phone", 2))]
    new = curriculum(choose="learnable")
    new.note(0, [task_of("map/phone")] * 2, [1.0, 0.5])
    monkeypatch.setattr(new, "draw", lambda template, rng: template.name)
    draws = RecordingDraws()
    assert new._candidate(1, "map", draws, [], None) == ("map/phone", "new")  # type: ignore[arg-type]
    share = 2 / 3
    weights = [share * (1 - share), 0.25, 0.25]
    assert draws.chances[0] == pytest.approx([weight / sum(weights) for weight in weights])


def test_proposals_of_the_site_come_first_and_each_once() -> None:
    made, proposed = curriculum(), [task_of("gitlab/star"), task_of("map/phone"), task_of("map/hours")]
    assert made._candidate(1, "map", None, proposed, None) == (task_of("map/phone"), "generated")  # type: ignore[arg-type]
    assert [task.sites[0] for task in proposed] == ["gitlab", "map"]


def test_those_nearest_to_the_band_fill_up_a_phase() -> None:
    made = curriculum(tasks=3, band=(0.2, 0.6))
    tasks = [task_of("map/phone", number) for number in range(5)]
    values = [0.9, 0.2, 0.15, 0.7, 0.05]
    grown = made._choose([(task, "new", value) for task, value in zip(tasks, values, strict=True)], Counter())
    assert grown.values == [0.2, 0.15, 0.7] and grown.widened and grown.counts == {"kept": 3}
    assert [grown.tasks.index(task) for task in (tasks[1], tasks[2], tasks[3])] == [0, 1, 2]
    few = made._choose([(tasks[0], "new", 0.3)], Counter())
    assert (few.values, few.widened) == ([0.3], False)
    many = made._choose([(task, "new", None) for task in tasks], Counter())
    assert len(many.tasks) == 3 and not many.widened


def test_tasks_to_begin_with_are_of_every_template_in_turn() -> None:
    made = curriculum(names=NAMES[:2])
    tasks = made.initial(4)
    assert [task.intent_template_id for task in tasks] == [*NAMES[:2]] * 2
    assert len({task_key(task) for task in tasks}) == 4
    made.test_keys = frozenset([task_key(tasks[0])])
    assert task_key(tasks[0]) not in {task_key(task) for task in made.initial(4)}
    assert {task.intent_template_id for task in made.initial(2, [TEMPLATES[NAMES[3]]])} == {NAMES[3]}


# A generator model ----------------------------------------------------------------------------------------------------


def test_a_generated_text_gets_the_grader_of_the_template_it_fits() -> None:
    known = task_of("map/phone", 7)
    assert known.spec is not None
    here = [TEMPLATES[name] for name in NAMES if name.startswith("map/")]
    assert {template.name for template, _, _ in match_templates(known.intent, here)} == {"map/phone"}
    task = resolve(known.intent, here, [known.spec.content], generator("resolve"))
    assert task is not None and task.spec is not None and task.spec.checks == known.spec.checks
    assert resolve("What is the phone number of Nobody At All?", here, [known.spec.content], generator("r")) is None
    assert resolve("Drop all tables", here, [known.spec.content], generator("r")) is None


def test_proposals_of_a_server_pass_the_same_filters() -> None:
    known, other = task_of("map/phone", 7), task_of("map/hours", 9)
    reply = f"1. `{known.intent}`\n2. `{known.intent}`\n3. `Buy a horse`\n4. {other.intent} (no back-ticks)"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps({"choices": [{"message": {"content": reply}, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    config = ServerConfig(base_url=f"http://127.0.0.1:{server.server_port}/v1", model="m", retries=0)
    made = curriculum(
        tasks=2, names=("map/phone", "map/hours"), generator=config, operators=OperatorShares(resample=1.0)
    )
    assert known.spec is not None
    failed = task_of("map/phone", 7)
    near = failed.model_copy(update={"intent": "something else"})  # same content, so the names are known
    made.note(0, [near], [False])
    grown = made.grow(1)
    server.shutdown()
    assert grown.origins.count("generated") == 1
    assert grown.tasks[grown.origins.index("generated")].intent == known.intent
    assert len({task_key(task) for task in grown.tasks}) == 2
