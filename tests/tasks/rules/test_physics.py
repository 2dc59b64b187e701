"""Drawn physics as a task: prompts, floors, altered contexts, what the test set must be, and a whole small run."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oneiro
from oneiro import recipe as recipes
from oneiro.learning import stages
from oneiro.models.chat import ChatFormat
from oneiro.rundir.run import Run
from oneiro.runtime.seeds import generator
from oneiro.tasks.answering import LazyRows
from oneiro.tasks.base import Malformed
from oneiro.tasks.rules.physics import (
    PatchLookup,
    PhysicsCase,
    PhysicsPredictor,
    PhysicsPredictorConfig,
    Sighting,
    TextLookup,
    copy_outcome,
)
from oneiro.tasks.rules.physics_data import (
    FULL,
    OTHER,
    SHUFFLED,
    TWIN,
    CaseSampler,
    Drawn,
    acceptance,
    draw_test,
    drawn_id,
    free_moves,
    most_likely,
    shuffle_outcomes,
)
from oneiro.tasks.rules.physics_task import PAIRS, UNCOPIED, PhysicsTask, measure
from oneiro.tasks.rules.recipe import PhysicsRecipe
from oneiro.worlds.rules.physics import (
    HELD_OUT_PAIRS,
    HELD_OUT_PERMUTATIONS,
    LETTERS,
    Physics,
    read_map,
)

SEEN = Sighting("U . . R # | D . . L . .", (("zo", "U"), ("ka", "0")), ". # . .")
AGAIN = Sighting("U # . R . | D . . L . .", (("zo", "0"), ("ka", "R")), "# . . .")


def a_case(*context: Sighting, word: str = "zo", after: str = "U", rules: str = "0", id: str = "0") -> PhysicsCase:
    return PhysicsCase(context, "U # . R . | D . . L # .", word, after, id, rules, "# . . #")


# Prompts --------------------------------------------------------------------------------------------------------------


def test_a_prompt_shows_rooms_with_their_outcomes_and_then_the_query_without_one() -> None:
    case, task = a_case(SEEN, AGAIN), PhysicsPredictor()
    assert task.prompt(case)[0]["content"] == (
        " U . . R # | D . . L . . zo U ka 0\n U # . R . | D . . L . . zo 0 ka R\n U # . R . | D . . L # . zo"
    )
    assert [text for text, outcome in task.pieces(case) if outcome] == [" U", " 0", " 0", " R"]
    assert task.target(case) == " U"
    assert task.prompt(replace(case, after="DD")) == task.prompt(case)


def test_outcomes_that_repeat_their_word_are_read_with_and_without_it() -> None:
    case, task = a_case(SEEN), PhysicsPredictor(PhysicsPredictorConfig(repeat_word=True))
    assert task.prompt(case)[0]["content"] == " U . . R # | D . . L . . zo zoU ka ka0\n U # . R . | D . . L # . zo"
    assert task.target(case) == " zoU"
    assert [task.parse(text, case) for text in (" zoU", " U", " zo0")] == ["U", "U", "0"]
    assert all(isinstance(task.parse(text, case), Malformed) for text in (" kaU", " zo", " zozoU"))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_the_longest_context_has_at_least_its_share(share: float, tmp_path: Path) -> None:
    recipe = recipes.load("rlvr/physics", [f"full_share={share}"], PhysicsRecipe)
    with Run.open(tmp_path / "run", recipe) as run:
        lengths = PhysicsTask(recipe, run).cases("sft").context
        assert share <= lengths.count(max(lengths)) / len(lengths) <= share + 0.2


@pytest.mark.parametrize(("view", "repeat"), [("sight", "true"), ("sight", "false"), ("map", "true")])
def test_a_row_of_sft_has_the_tokens_of_the_prompt_and_loss_on_every_outcome(
    view: str, repeat: str, tmp_path: Path
) -> None:
    settings = ["preset=smoke", f"task.view={view}", f"task.repeat_word={repeat}"]
    recipe = recipes.load("rlvr/physics", settings, PhysicsRecipe)
    with Run.open(tmp_path / "run", recipe) as run:
        task = PhysicsTask(recipe, run)
        language = task.create_tiny()
        chat = ChatFormat(language.tokenizer)
        for case in map(CaseSampler("train", 1, view, (8,)), range(20)):
            row, prompt = task.row(chat, case), chat.opening(task.predictor.prompt(case)[0]["content"])
            assert row.tokens[: len(prompt)].tolist() == prompt.tolist()
            assert len(row) == len(prompt) + 2  # a displacement is one token; then the end
            learned = row.tokens[row.weights("ce") > 0]
            tries = [*(step for sighting in case.context for step in sighting.tries), (case.word, case.after)]
            outcomes = [f" {word}{after}" if recipe.task.repeat_word else f" {after}" for word, after in tries]
            assert language.decode(learned) == "".join(outcomes) + "<|im_end|>"
        cases = CaseSampler("train", 1, view, (8,))
        rows = LazyRows(lambda number: task.row(chat, cases(number)), 3)
        assert len(rows) == 3
        assert [len(row) for row in rows] == [len(row) for row in rows[0:3]]


# Floors ---------------------------------------------------------------------------------------------------------------


def test_copying_takes_what_the_word_did_most_often_and_of_equally_many_the_last() -> None:
    assert copy_outcome(a_case(SEEN)) == "U"
    assert copy_outcome(a_case(SEEN, AGAIN)) == "0"
    assert copy_outcome(a_case(SEEN, AGAIN, SEEN)) == "U"
    assert copy_outcome(a_case(SEEN, AGAIN, word="mu")) == "0"
    assert copy_outcome(a_case()) == "0"


def test_the_lookups_know_training_and_nothing_of_the_prompt() -> None:
    known = [
        replace(a_case(after="D"), text="U . . R . | D . . L . ."),  # two places differ from the query
        replace(a_case(after="LL"), text="U # . R . | D . . L # |"),  # one
        replace(a_case(after="R", word="ka"), text="U # . R . | D . . L # ."),  # another word
    ]
    query = a_case(SEEN)
    assert TextLookup(known)(query) == "LL"
    assert TextLookup(known)(replace(query, word="ri")) == "0"
    patches = PatchLookup([*known[:2], replace(known[1], id="again"), replace(known[0], patch=". . . .")])
    assert patches(query) == "LL"
    assert patches(replace(query, patch=". . . .")) == "D"
    assert patches(replace(query, patch="X . . .")) == "LL"  # of all steps of the word: D twice, LL twice
    assert patches(replace(query, word="ri")) == "0"


# The test set ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn_test() -> tuple[list[Drawn], dict[str, list[PhysicsCase]]]:
    return draw_test(3, physics=12, queries=3, context=(0, 4, 8), view="map")


def test_the_test_has_words_and_twists_that_training_never_has(
    drawn_test: tuple[list[Drawn], dict[str, list[PhysicsCase]]],
) -> None:
    drawn, forms = drawn_test
    assert all(one.physics.moves in HELD_OUT_PERMUTATIONS for one in drawn)
    assert all(one.physics.twists in HELD_OUT_PAIRS for one in drawn)
    assert [len(forms[form]) for form in (FULL, "K=0", "K=4", OTHER, SHUFFLED)] == [36] * 5
    assert len({case.rules for case in forms[FULL]}) == 12
    assert {len(case.context) for case in forms[FULL]} == {2}
    assert {len(case.context) for case in forms["K=4"]} == {1}


def test_outcomes_of_cases_are_those_of_their_rules(
    drawn_test: tuple[list[Drawn], dict[str, list[PhysicsCase]]],
) -> None:
    drawn, forms = drawn_test
    for one, case in zip(drawn, forms[FULL], strict=True):
        room = read_map(one.physics, case.text)
        assert room is not None
        assert case.after == one.outcome(room, one.word)


def test_another_context_is_that_of_the_next_physics_and_shuffling_keeps_the_outcomes(
    drawn_test: tuple[list[Drawn], dict[str, list[PhysicsCase]]],
) -> None:
    _, forms = drawn_test
    assert forms[OTHER][0].context == forms[FULL][3].context
    assert forms[OTHER][-1].context == forms[FULL][2].context
    assert all(a.after == b.after and a.text == b.text for a, b in zip(forms[OTHER], forms[FULL], strict=True))
    one = shuffle_outcomes(generator("test"), (SEEN, AGAIN))
    assert sorted(after for seen in one for _, after in seen.tries) == ["0", "0", "R", "U"]
    assert [(seen.text, [word for word, _ in seen.tries]) for seen in one] == [
        (seen.text, ["zo", "ka"]) for seen in (SEEN, AGAIN)
    ]
    assert any(shuffle_outcomes(generator("test", n), (SEEN, AGAIN)) != (SEEN, AGAIN) for n in range(8))


def test_twins_share_every_room_and_differ_in_the_answer(
    drawn_test: tuple[list[Drawn], dict[str, list[PhysicsCase]]],
) -> None:
    _, forms = drawn_test
    full = {drawn_id(case): case for case in forms[FULL]}
    assert len(forms[TWIN]) > 24
    for twin in forms[TWIN]:
        case = full[drawn_id(twin)]
        assert (twin.text, twin.word) == (case.text, case.word)
        assert [seen.text for seen in twin.context] == [seen.text for seen in case.context]
        assert twin.after != case.after
        assert twin.context != case.context


def test_memory_cannot_help(drawn_test: tuple[list[Drawn], dict[str, list[PhysicsCase]]]) -> None:
    drawn, forms = drawn_test
    train = [step for case in map(CaseSampler("train", 0, "map", (8,)), range(100)) for step in case.steps()]
    assert len(train) == 900
    numbers = acceptance(drawn, forms[FULL], train)
    assert numbers["conflict"] >= 0.5
    assert numbers["coverage"] == 0
    assert acceptance(drawn, forms[FULL], forms[FULL])["coverage"] == 1


def test_the_conflict_rate_by_hand() -> None:
    """A walker between walls stays whatever a word means; in an open room each of the 18 meanings that send the word
    elsewhere changes the outcome.
    """
    physics = Physics((0, 1, 2, 3), ("ice", "boxes"), (0, 0), ("#", "A", "B", "C", "E"))
    shut = read_map(physics, "@ # .\n# . .\n. . *\n.")
    bare = read_map(physics, ". . .\n. @ .\n. . *\n.")
    assert shut is not None
    assert bare is not None
    drawn = [Drawn(physics, (), room, 0) for room in (shut, bare)]
    cases = [one.case("map", "0", "0") for one in drawn]
    assert [case.after for case in cases] == ["0", "U"]
    numbers = acceptance(drawn, cases, [])
    assert numbers["conflict"] == 0.5
    assert numbers["disagreement"] == pytest.approx((0 + 18 / 23) / 2)
    assert numbers["copying wrong"] == 0.5


def test_bayes_infers_what_a_context_decides() -> None:
    """In one room each word leads to a free tile, so the meaning of the words is known; and # stopped the walker."""
    physics = Physics((1, 0, 2, 3), ("ice", "boxes"), (0, 0), ("#", "A", "B", "C", "E"))
    free, walled = (read_map(physics, text) for text in (". . .\n. @ .\n. . *\n.", ". # .\n. @ .\n. . *\n."))
    assert free is not None
    assert walled is not None
    known = Drawn(physics, ((free, (0, 1, 2, 3)), (walled, (0, 1, 2, 3))), walled, 1)
    assert most_likely(known) == "0"
    assert most_likely(replace(known, word=0)) == "R"
    # Without the walled room # may as well be ice or a box: it slides on, or is pushed, in two of three meanings.
    assert most_likely(replace(known, seen=known.seen[:1], room=free, word=1)) == "U"
    drawn, forms = draw_test(0, physics=8, queries=2, context=(0, 16), view="sight")
    right = [most_likely(one) == case.after for one, case in zip(drawn, forms[FULL], strict=True)]
    assert sum(right) >= 15


def test_bayes_gives_each_pair_of_twists_the_same_weight_however_many_rules_it_has() -> None:
    """A let the walker on at the upper edge: as ice, as a pad that throws beyond the edge (up, left or right), or as a
    one-way tile (up). With wind, a pair of twists has a tile or its four directions besides the wall: 1/2 for the ice,
    1/8 for each direction of the others. So the walker slides, though three pads speak for one step and one ice.
    """
    physics = Physics((0, 1, 2, 3), ("ice", "wind"), (0, 0), ("#", "A", "B", "C", "E"))
    texts = (". . .\n. @ .\n. . *\n. 0", ". A .\n. @ .\n. . *\n. 0", ". . .\n@ A .\n. . *\n. 0")
    free, edge, middle = (read_map(physics, text) for text in texts)
    assert free is not None and edge is not None and middle is not None
    one = Drawn(physics, ((free, (0, 1, 2, 3)), (edge, (0,))), middle, 1)
    assert one.outcome(edge, 0) == "U"
    assert most_likely(one) == "RR"


def test_free_words_lead_anywhere_but_as_in_the_test() -> None:
    rng = generator(0, "free")
    drawn = Counter(free_moves(rng) for _ in range(4000))
    assert len(drawn) == 4**4 - len(HELD_OUT_PERMUTATIONS) and not HELD_OUT_PERMUTATIONS & set(drawn)

    def share_of_equal_steps(free: float) -> float:
        """Of first rooms of a context, those in which two words led to the same tile beside the walker."""
        cases = map(CaseSampler("train", 0, "sight", (4,), 1.0, free), range(200))
        steps = [[after for _, after in case.context[0].tries if after in LETTERS] for case in cases]
        return float(np.mean([len(set(one)) < len(one) for one in steps]))

    assert share_of_equal_steps(0.0) < 0.2 < 0.5 < share_of_equal_steps(1.0)


def test_simple_rules_have_one_twist_or_none_and_the_test_has_two() -> None:
    counts = {}
    for simple in (0.0, 1.0):
        texts = [case.text for case in map(CaseSampler("train", 0, "sight", (0,), simple), range(200))]
        counts[simple] = np.mean([len(set(text.split(" ")) - set("URDL.|*")) for text in texts])
    assert counts[1.0] < counts[0.0]


def test_training_texts_are_never_those_of_queries() -> None:
    train, test = ({case.text for case in map(CaseSampler(split, 0), range(300))} for split in ("train", "eval"))
    watched = {case.text for case in map(CaseSampler("validation", 0), range(300))}
    seen = {one.text for case in map(CaseSampler("train", 0), range(300)) for one in case.context}
    assert not (train | seen) & (test | watched)


# Measurements ---------------------------------------------------------------------------------------------------------


def test_measurements_by_hand() -> None:
    """Two physics with two queries each, of which copying gets two wrong; twins of two."""
    easy, hard = a_case(SEEN, after="U"), a_case(SEEN, after="D")
    full = [replace(case, id=f"{n} full", rules=str(n // 2)) for n, case in enumerate((easy, hard, easy, hard))]
    twins = [replace(full[n], id=f"{n} twin", after="L") for n in (0, 1)]
    forms = {FULL: full, "K=0": [replace(case, context=()) for case in full], TWIN: twins}
    right = {"0 full": "U", "1 full": "D", "2 full": "U", "3 full": "U", "0 twin": "L", "1 twin": "R"}
    cells = measure(PhysicsPredictor(), forms, lambda case: right[case.id])
    assert {name: (cell["value"], cell["n"]) for name, cell in cells.items()} == {
        FULL: (0.75, 4),
        "K=0": (0.75, 4),
        UNCOPIED: (0.5, 2),
        PAIRS: (0.5, 2),
    }
    # The two physics have 1 and .5: what is drawn again are whole physics, so no resample is below .5.
    assert (cells[FULL]["low"], cells[FULL]["high"]) == (0.5, 1.0)


# A run ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(finished: Callable[[str, str], Path]) -> Path:
    """A smoke run that was left alone."""
    return finished("rlvr/physics", "smoke")


def test_a_run_ends_with_floors_control_and_acceptance_numbers(alone: Path) -> None:
    exact, memory = json.loads((alone / "summary.json").read_text())["tables"]
    rows = ["no change", "lookup", "lookup by patch", "copy from the prompt", "SFT", "SFT continued", "RLVR"]
    rows += ["Bayes over the family", "perfect"]
    assert [row["answers"] for row in exact["rows"]] == rows
    assert exact["columns"][1:] == [FULL, UNCOPIED, "K=0", OTHER, SHUFFLED, PAIRS]
    assert all(exact["rows"][-1][column]["value"] == 1 for column in exact["columns"][1:])
    assert exact["rows"][3][UNCOPIED]["value"] == 0
    assert [row["number"] for row in memory["rows"]] == ["conflict", "disagreement", "coverage", "copying wrong"]
    updates = [json.loads(line) for line in (alone / "metrics.jsonl").read_text().splitlines()]
    for stage in ("sft", "rl", "sft-continued"):
        assert any(row.get("grad_norm", 0) > 0 for row in updates if row["stage"] == stage), stage


def test_the_control_learns_from_the_prompts_of_rl_and_resumes_with_the_recorded_number_of_updates(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = json.loads((alone / "run.json").read_text())
    control = info["stages"]["sft-continued"]["result"]
    assert control == {"rows": 2 * 8, "steps": info["stages"]["sft-continued-budget"]["result"]["steps"]}
    again = tmp_path / "again"
    shutil.copytree(alone, again)
    for stage in ("sft-continued", "evaluate-sft-continued", "compare"):
        info["stages"].pop(stage)
    (again / "run.json").write_text(json.dumps({**info, "status": "running"}))
    shutil.rmtree(again / "checkpoints" / "sft-continued")
    monkeypatch.setattr(stages, "count_updates", None)  # it is not timed a second time
    oneiro.run(str(again))
    assert json.loads((again / "run.json").read_text())["stages"]["sft-continued"]["result"] == control
    assert (again / "summary.json").read_text() == (alone / "summary.json").read_text()


def test_the_updates_that_fit_are_counted_by_their_pace_without_the_first_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that says 100, 200, then 2 s more after each update: 25 s fit 12 of them."""
    recipe = recipes.load("rlvr/physics", ["preset=smoke", "sft_continued.batch=2"], PhysicsRecipe)
    assert recipe.sft_continued is not None
    readings = iter([100.0, *(200.0 + 2 * update for update in range(stages.PACE_UPDATES + 1))])
    monkeypatch.setattr(stages.time, "perf_counter", lambda: next(readings))
    learned = list[list[bytes]]()
    monkeypatch.setattr(
        stages.Learner, "update", lambda self, examples: learned.append([one.tokens.tobytes() for one in examples])
    )
    with Run.open(tmp_path / "run", recipe) as run:
        task = PhysicsTask(recipe, run)
        language = task.create_tiny()
        rows, _ = task.training_rows(ChatFormat(language.tokenizer))
        steps = stages.count_updates(language, rows, None, recipe.sft_continued, 3, seconds=25.0)
        whole = stages.schedule_of(recipe.sft_continued, rows, None)
    assert steps == 12
    # The rows that are timed are those that the control begins with, in its order.
    first = [[rows[place].tokens.tobytes() for place in whole.rows(3, step)] for step in range(len(learned))]
    assert len(learned) == stages.PACE_UPDATES + 2 and learned == first


def test_the_seconds_of_rl_leave_out_evaluations_and_checkpoints(tmp_path: Path) -> None:
    recipe = recipes.load("rlvr/physics", ["preset=smoke"], PhysicsRecipe)
    with Run.open(tmp_path / "run", recipe) as run:
        run.time("rl", 1, {"sampling": 2.0, "learning": 3.0, "measuring": 50.0})
        run.time("rl", 2, {"sampling": 1.0, "learning": 0.5})
        run.time("rl", 2, {"checkpointing": 9.0})
        run.time("other", 1, {"sampling": 70.0})
        assert stages.training_seconds(run, "rl") == pytest.approx(6.5)


def test_prompts_are_bounded_and_garbage_is_no_prediction() -> None:
    task, case = PhysicsPredictor(PhysicsPredictorConfig(view="map", explain=True)), CaseSampler("eval", 0, "map")(0)
    assert task.prompt(case)[0]["content"].startswith("A walker")
    assert task.metrics("x" * 10**6, case) == {"exact": 0.0, "parsed": 0.0}
    assert task.metrics(f"\n{case.after} ", case)["exact"] == 1
    assert np.isfinite(task.reward("\x00", case).value)
