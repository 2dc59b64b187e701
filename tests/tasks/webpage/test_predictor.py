"""The web-page task: prompts without the outcome, windows, lookup, retrieval, heads, files and rollouts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.tasks.base import Malformed
from oneiro.tasks.webpage.evaluation import difference, distinct, measure, tables
from oneiro.tasks.webpage.lookup import PageLookup, transplant
from oneiro.tasks.webpage.parquet import read_parquet, write_parquet
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.record import HISTORY, recorded_web
from oneiro.tasks.webpage.rollout import carry_over, chains, errors_by_depth, imagine, true_predictor
from oneiro.tasks.webpage.state import PageState, same_items, shown_items, true_diff, window_after, window_before
from oneiro_web.diff import Diff, Item, apply
from tests.tasks.webpage.cases import recorded, state, step

BRIEF = WebPagePredictorConfig(lines=14, brief=True, deletions="ids")
COUNTED = WebPagePredictorConfig(lines=14, brief=True, deletions="ids", numbers="window")


@pytest.mark.parametrize(
    "config", [WebPagePredictorConfig(), BRIEF, COUNTED, WebPagePredictorConfig(retrieve=2, heads=("url",))]
)
def test_a_prompt_does_not_depend_on_the_outcome(config: WebPagePredictorConfig) -> None:
    task = WebPagePredictor(config, examples=recorded())
    for case in recorded():
        other = replace(case, after=PageState("http://other/", ()), matched=(), valid=False, done=True, reward=1.0)
        assert task.prompt(other) == task.prompt(case)
    assert task.prompt(recorded()[0].situation())


@pytest.mark.parametrize("lines", [0, 6, 14])
def test_the_true_change_leads_from_what_is_shown_to_what_is_seen_next(lines: int) -> None:
    for case in recorded():
        after = window_after(case, case.after, lines).of(case.after)
        found = apply(shown_items(case, lines), true_diff(case, lines), after[0].id if after else None)
        assert [(i.id, i.line) for i in found] == [(i.id, i.line) for i in after]


def test_a_window_begins_at_the_pages_own_part_or_follows_the_element() -> None:
    page = state("RootWebArea 'x'", "link 'Home'", "main ''", *(f"link 'row {n}'" for n in range(20)))
    case = step(page, "click [2]", page)
    assert [i.id for i in shown_items(case, 4)] == [3, 4, 5, 6]
    assert [i.id for i in shown_items(replace(case, action="click [12]"), 4)] == [10, 11, 12, 13]
    assert [i.id for i in shown_items(replace(case, action="click [23]"), 4)] == [20, 21, 22, 23]
    assert [i.id for i in shown_items(replace(case, action="click [99]"), 4)] == [3, 4, 5, 6]
    assert len(shown_items(case, 0)) == 23 and window_before(case, 0).top == 0


def test_another_address_has_nothing_of_the_old_pages_own_part() -> None:
    def framed(url: str, *own: str) -> PageState:
        lines = [("link 'Home'", 1), ("main ''", 1), *((line, 2) for line in own), ("contentinfo ''", 1)]
        return PageState(url, tuple(Item(n + 1, line, depth) for n, (line, depth) in enumerate(lines)))

    one, two = framed("http://a/1", "heading 'A'", "button 'Go'"), framed("http://a/2", "button 'Go'")
    assert same_items(one, two, [0, 1, 3, 4]) == (0, 1, -1, 4)
    again = framed("http://a/1#top", "button 'Go'")
    assert same_items(one, again, [0, 1, 3, 4]) == (0, 1, 3, 4)


def test_actions_that_do_nothing_are_recorded_as_such_and_the_script_goes_on() -> None:
    probes = [case for case in recorded() if case.probe]
    assert len(probes) > 3 and all(case.state == case.after for case in probes if not case.valid)
    absent = [case for case in probes if case.state.item(case.element) is None]
    assert absent and not any(case.valid for case in absent)
    assert any(case.done and case.reward == 1.0 for case in recorded())  # the oracle solves its task in between
    typed = [case.action.startswith("type [") for case in absent]
    assert any(typed) and not all(typed)


def test_the_actions_before_a_step_are_those_of_the_player_without_probes() -> None:
    for episode in {case.episode for case in recorded()}:
        done: list[str] = []
        for case in (case for case in recorded() if case.episode == episode):
            assert case.previous == tuple(done[-HISTORY:])
            done += [] if case.probe else [case.described]


def test_the_lookup_makes_the_change_of_the_nearest_step_on_the_page_in_question() -> None:
    vote = step(
        state("main ''", "heading 'A'", "button 'Upvote'", "StaticText '4'"),
        "click [3]",
        state("main ''", "heading 'A'", "button 'Retract upvote'", "StaticText '5'"),
        episode="one",
    )
    here = replace(vote, state=state("main ''", "link 'B'", "heading 'C'", "button 'Upvote'"), action="click [4]")
    found = PageLookup([vote], 0)(replace(here, episode="two"))
    assert found == Diff(updated=(Item(4, "button 'Retract upvote'"),))
    assert PageLookup([vote], 0)(vote) == true_diff(vote, 0)
    assert PageLookup([vote], 0).nearest(vote, apart=True) == []
    assert PageLookup([], 0)(vote) == Diff()
    other = replace(here, state=state("main ''", "link 'B'", "heading 'C'", "button 'Downvote'"))
    assert [PageLookup([vote], 0).has_seen(case) for case in (vote, here, other)] == [True, True, False]
    new = transplant(Diff(new=(Item(9, "alert ''"),)), [Item(5, "x")], [Item(7, "y")]).new
    assert new == (Item(11, "alert ''"),)
    assert transplant(Diff(deleted=(Item(1, "x"),)), [Item(1, "x")], [Item(7, "y"), Item(8, "x")]).deleted == (
        Item(8, "x"),
    )


def test_retrieval_shows_similar_steps_and_never_the_step_itself() -> None:
    cases = distinct(recorded())
    task = WebPagePredictor(WebPagePredictorConfig(lines=10, brief=True, retrieve=1), examples=cases)
    plain = WebPagePredictor(WebPagePredictorConfig(lines=10, brief=True))
    told = [case for case in cases if "A similar step" in task.prompt(case)[0]["content"]]
    assert told
    for case in told:
        text = task.prompt(case)[0]["content"]
        assert text.endswith(plain.prompt(case)[0]["content"])
        near = PageLookup(cases, 10).nearest(case, apart=True)[0]
        assert near.episode != case.episode and near.described in text


def test_heads_are_asked_for_read_and_paid() -> None:
    task = WebPagePredictor(WebPagePredictorConfig(heads=("url", "done", "reward")))
    case = next(case for case in recorded() if case.done)
    assert task.target(case).endswith(f"Outcome:\nurl: {case.after.url}\ndone: yes\nreward: 1")
    assert task.reward(task.target(case), case).value == pytest.approx(1.0)
    wrong = task.target(case).replace("done: yes", "done: no").replace("reward: 1", "reward: 0")
    assert task.reward(wrong, case).value == pytest.approx(0.8 + 0.2 / 3)
    assert task.metrics(wrong, case)["done_right"] == 0 and task.metrics(wrong, case)["f1"] == 1
    assert task.reward(task.no_change(case), case).value == pytest.approx(0.8)  # stop changes no page


def test_files_keep_every_step_and_have_the_published_columns(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path, cases = tmp_path / "steps.parquet", list(recorded())
    assert write_parquet(path, cases) == len(cases) and read_parquet(path) == cases
    row = pq.read_table(path).to_pylist()[0]
    published = [
        *("task_id", "step_idx", "previous_actions", "next_state_acctree", "refined_tao", "raw_prediction"),
        *("next_state_description_with_tao", "new_items", "updated_items", "deleted_items", "question", "answer"),
        *("data_source", "prompt", "ability", "reward_model", "extra_info"),
    ]
    assert list(row) == published and row["data_source"] == "web_agent"
    task = WebPagePredictor()
    assert row["prompt"] == [{"role": "user", "content": row["question"]}]
    assert row["reward_model"]["ground_truth"] == row["answer"] == task.target(cases[0])
    blocks = [row[name] for name in ("new_items", "deleted_items", "updated_items")]
    assert row["answer"].split("\n\n")[1].split("\n", 1)[1] == blocks[1]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    for name in ("bad.parquet", "absent.parquet"):
        with pytest.raises(OneiroError, match=name):
            read_parquet(tmp_path / name)
    with pytest.raises(OneiroError, match="no web world"):
        recorded_web("frozen-lake")
    with pytest.raises(OneiroError, match="accessibility"):
        recorded_web("web:html")


def test_the_tables_have_the_rows_that_need_no_model_and_the_rate_of_failing_actions() -> None:
    task, cases = WebPagePredictor(BRIEF), distinct(recorded())
    rows = {name: measure(task, cases, answers) for name, answers in task.baselines(cases).items()}
    assert rows["perfect"]["all"]["f1"]["value"] == 1.0 and rows["no change"]["changed"]["f1"]["value"] == 0.0
    assert 0 < rows["copy"]["changed"]["f1"]["value"] < 1
    assert rows["no change"]["failed"]["all"]["value"] == 1.0 == rows["perfect"]["failed"]["all"]["value"]
    assert rows["copy"]["failed"]["all"]["value"] == 0.0 and rows["copy"]["kept"]["value"] == 1.0
    inert = [case for case in cases if case.state == case.after]
    assert rows["copy"]["failed"]["all"]["n"] == len(inert) > 0
    found = tables(task, rows, {"perfect": errors_by_depth(task, true_predictor(task, cases), chains(recorded()))})
    assert [table.columns[0] for table in found] == ["answers"] * 4 + ["steps"]


def test_steps_that_training_has_seen_and_new_ones_have_figures_of_their_own() -> None:
    task, cases = WebPagePredictor(BRIEF), distinct(recorded())
    changed = [case for case in cases if task.changes(case)]
    known = {case.id for case in changed[:3]}
    row = measure(task, cases, lambda case: task.target(case) if case.id in known else "", lambda c: c.id in known)
    assert [(row["seen"][part]["f1"]["value"], row["seen"][part]["f1"]["n"]) for part in ("seen", "new")] == [
        (1.0, 3),
        (0.0, len(changed) - 3),
    ]
    assert [table.columns[1:] for table in tables(task, {"half": row})][3] == ["seen", "new"]


def test_two_sets_of_answers_are_compared_step_by_step_on_steps_that_change_the_page() -> None:
    task, cases = WebPagePredictor(WebPagePredictorConfig(brief=True)), list(recorded())
    changed = [case for case in cases if task.changes(case)]
    right = {case.id for case in changed[: len(changed) // 2]}
    nothing, truth = (measure(task, cases, answers) for answers in (task.no_change, task.target))
    half = measure(task, cases, lambda case: task.target(case) if case.id in right else task.no_change(case))
    assert difference(half, nothing).value == pytest.approx(len(right) / len(changed))
    assert difference(nothing, half).value == pytest.approx(-len(right) / len(changed))
    assert difference(truth, nothing).n == len(changed) < len(cases)
    found = difference(half, nothing)
    assert found.low is not None and found.high is not None and found.low < found.value < found.high  # type: ignore[operator]


def test_true_changes_carried_out_one_after_another_stay_on_the_true_page() -> None:
    whole = WebPagePredictor(WebPagePredictorConfig(heads=("url",)))
    episodes = chains(recorded())
    assert max(len(chain) for chain in episodes) >= 4
    for row in errors_by_depth(whole, true_predictor(whole, recorded()), episodes, (1, 2, 4)):
        assert row["value"] == 0.0
    first = errors_by_depth(whole, lambda asked: ["nonsense"] * len(asked), episodes, (1,))[0]
    still = errors_by_depth(whole, lambda asked: [whole.no_change(case) for case in asked], episodes, (1,))[0]
    assert first["value"] == still["value"] > 0.1


def test_an_imagined_page_keeps_what_is_not_shown_unless_it_is_left() -> None:
    task = WebPagePredictor(WebPagePredictorConfig(lines=3))
    page = state("RootWebArea 'x'", "main ''", *(f"link 'row {n}'" for n in range(9)))
    case = step(page, "click [9]", page)
    assert [i.id for i in shown_items(case, 3)] == [8, 9, 10]
    gone = imagine(task, case, task.write(Diff(deleted=(Item(9, "link 'row 6'"),)), case))
    assert gone is not None and [i.line for i in gone.state.items] == [i.line for i in page.items if i.id != 9]
    fresh = (Item(2, "main ''"), Item(3, "heading 'new'"))
    left = imagine(task, case, task.write(Diff(new=fresh, deleted=shown_items(case, 3)), case))
    assert left is not None and [str(i) for i in left.state.items] == [
        "[1] RootWebArea 'x'",
        "[2] main ''",
        "[3] heading 'new'",
    ]


def test_an_action_is_carried_over_to_the_same_line_of_an_imagined_page() -> None:
    true, other = (
        state("main ''", "link 'a'", "link 'b'"),
        state("main ''", "alert ''", "link 'a'", "link 'b'", "link 'b'"),
    )
    assert carry_over("click [3]", true, other) == "click [4]"
    assert carry_over("type [2] [x [2]] [1]", true, other) == "type [3] [x [2]] [1]"
    assert (
        carry_over("click [1]", state("link 'gone'"), other) == "click [1]"
        and carry_over("none", true, other) == "none"
    )


def test_any_answer_leads_to_a_page_or_to_none() -> None:
    case = recorded()[0]
    for config in (BRIEF, COUNTED, WebPagePredictorConfig()):
        task = WebPagePredictor(config)
        assert imagine(task, case, "") is None
        everything = task.write(Diff(deleted=case.state.items), case)
        found = imagine(task, case, everything)
        assert found is None if not config.lines else found is not None and len(found.state.items) >= 1
        far = task.write(Diff(new=(Item(10**9 - 1, "link 'far'"), Item(1, "link 'near'"))), case)
        told = imagine(task, case, far)
        assert told is not None and [i.id for i in told.state.items] == list(range(1, len(told.state.items) + 1))
    assert isinstance(WebPagePredictor().parse("\x00\ud800", case), Malformed)


def test_an_imagined_page_after_an_empty_one_counts_from_one() -> None:
    task = WebPagePredictor()
    case = step(state(), "goto [http://reddit.com/]", state("main ''"))
    found = imagine(task, case, task.write(Diff(new=(Item(1, "main ''"), Item(2, "link 'a'"))), case))
    assert found is not None and [item.id for item in found.state.items] == [1, 2]
