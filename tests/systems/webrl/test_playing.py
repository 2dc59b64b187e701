"""Tasks that are played for WebRL: which attempts there are, which files they make, and who labels them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from oneiro.episode import Episode, FinishReason
from oneiro.models.language import LanguageModel
from oneiro.recipe import load
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.systems.webrl import episodes as records
from oneiro.systems.webrl import pipeline, playing
from oneiro.systems.webrl.formats import Trace, TraceStep
from oneiro.systems.webrl.outcome import Features, NoisyOracle, Oracle, Rules
from oneiro.systems.webrl.processing import ranker, rule_labels
from oneiro.systems.webrl.recipe import WebrlRecipe

RECIPE = load("webrl/sandbox", ["preset=smoke"], WebrlRecipe)


def task(number: int) -> Any:
    return SimpleNamespace(task_id=f"t{number}", intent="Do it.", sites=["map"], intent_template_id="map/phone")


def episode(number: int, turns: int = 1, **facts: Any) -> Episode:
    own = [{"message": "m", "state": f"'p{turn}'", "reply": "<answer>stop [x]</answer>", "actions": [{"valid": True}]}
           for turn in range(turns)]  # fmt: skip
    info = {"task": {"id": f"t{number}", "intent": "What is it?"}, "turns": own}
    return Episode([], [0.0] * turns, info=info, group=number, **facts)


def test_every_task_is_attempted_with_seeds_of_its_own_and_what_broke_off_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    def play(worlds: Any, planned: Any, *given: Any) -> list[Episode]:
        calls.append((planned, given))
        broken = {2: FinishReason.ERROR}
        return [episode(one.group, finish_reason=broken.get(place)) for place, one in enumerate(planned)]

    monkeypatch.setattr(playing, "play", play)
    heard = lambda count: None  # noqa: E731
    found = playing.play_tasks(RECIPE, [task(0), task(1)], "policy", 7, None, 2, 10, heard)  # type: ignore[arg-type]
    ((planned, (policy, dialogue, chat, seed, prefix, advance, concurrency)),) = calls
    assert [(one.group, one.member) for one in planned] == [(10, 0), (10, 1), (11, 0), (11, 1)]
    assert [one.seed for one in planned] == [seeds.derive(7, number) % 2**31 for number in (10, 10, 11, 11)]
    assert (policy, dialogue, chat, advance) == ("policy", RECIPE.dialogue, None, heard)
    assert (seed, prefix, concurrency) == (seeds.derive(7, 10), "", RECIPE.concurrency)
    assert [one.group for one in found] == [10, 10, 11]
    assert found[0].info["task"] == {"id": "t0", "intent": "Do it.", "site": "map", "template": "map/phone"}
    playing.play_tasks(RECIPE, [task(0)], "policy", 7, "chat")  # type: ignore[arg-type]
    assert calls[1][1][4] == RECIPE.response_prefix and [one.group for one in calls[1][0]] == [0]


def test_every_few_attempts_are_a_file_and_files_that_are_there_are_not_played_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    played: list[tuple[int, int]] = []

    def play_tasks(
        recipe: Any, part: Any, policy: Any, seed: int, chat: Any, size: int, first: int, advance: Any
    ) -> list[Episode]:
        played.append((first, len(part)))
        advance(len(part) * size)
        return [episode(first + place) for place in range(len(part))]

    monkeypatch.setattr(playing, "play_tasks", play_tasks)
    monkeypatch.setattr(playing, "CHUNK", 4)
    monkeypatch.setattr(playing, "WAVES", 0)
    made, heard = [], []
    arguments = (RECIPE, [task(n) for n in range(5)], lambda: made.append(1) or ("policy", None), tmp_path, 7, 2)
    found = playing.play_chunks(*arguments, heard.append)
    assert played == [(0, 2), (2, 2), (4, 1)] and made == [1] and heard == [4, 4, 2]
    assert [one.group for one in found] == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000.jsonl", "0001.jsonl", "0002.jsonl"]
    (tmp_path / "0001.jsonl").unlink()
    playing.play_chunks(*arguments, heard.append)
    assert played[3:] == [(2, 2)] and made == [1, 1] and heard[3:] == [4, 4, 2]
    assert playing.CHUNK == 4 and playing.play_chunks(*arguments)[0].group == 0 and made == [1, 1]
    monkeypatch.setattr(playing, "WAVES", 2)
    few = RECIPE.model_copy(update={"concurrency": 3})
    playing.play_chunks(few, arguments[1], arguments[2], tmp_path / "few", 7, 2)
    assert played[4:] == [(0, 3), (3, 2)]  # two attempts for each of three places


def test_a_split_has_distinct_tasks_and_its_first_pages_are_what_the_agent_reads() -> None:
    recipe = RECIPE.model_copy(update={"evaluation": RECIPE.evaluation.model_copy(update={"tasks": 3})})
    tasks = playing.split_tasks(recipe, "test-unseen")
    assert len(tasks) == len({one.intent for one in tasks}) == 3
    (turn, *others) = playing.first_turns(recipe, tasks)
    assert len(others) == 2 and tasks[0].intent in turn["state"] and turn["reply"] == ""
    assert playing.metadata(recipe).sampling.temperature == recipe.evaluation.temperature
    assert set(playing.metadata(recipe).splits) == set(recipe.splits)


def run_with(tmp_path: Path, demonstrations: list[Episode], rollouts: list[Episode] = ()) -> Any:  # type: ignore[assignment]
    records.write(tmp_path / "phase_0" / "demonstrations.jsonl", demonstrations)
    records.write(tmp_path / "phase_0" / "rollouts" / "0000.jsonl", rollouts)
    said: list[str] = []
    return SimpleNamespace(path=tmp_path, say=said.append, said=said)


def test_a_few_demonstrations_measure_the_loss_but_never_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = run_with(tmp_path, [episode(number, success=True) for number in range(200)])
    parts: list[Any] = []
    monkeypatch.setattr(pipeline.agents, "imitate", lambda recipe, run, *given: parts.append(given) or {"loss": 0.5})
    result = pipeline.sft(RECIPE, run)
    ((learned, aside),) = parts
    draws = [seeds.generator(RECIPE.seed, "held out", number).random() for number in range(200)]
    expected = [number for number in range(1, 200) if draws[number] < 0.03]
    assert [one.group for one in aside] == expected and len(learned) == 200 - len(expected)
    assert result == {"demonstrations": len(learned), "loss": 0.5} and 0 < len(expected) < 15


def test_trajectories_of_a_task_are_learned_from_or_measure_never_both(tmp_path: Path) -> None:
    shown = [episode(number, 2, success=True) for number in range(60)]
    run = run_with(tmp_path, shown, [episode(number, 2, success=False) for number in range(60)])
    settings = RECIPE.outcome.model_copy(update={"trajectories": 40})
    recipe = RECIPE.model_copy(update={"outcome": settings})
    learned, held_out = pipeline.read_judged(recipe, run)
    seed = seeds.derive(recipe.seed, "outcome data")
    apart = {f"t{number}" for number in range(40) if seeds.derive(seed, f"t{number}") % 4 == 0}
    assert {records.task_of(one) for one in held_out} <= apart and apart
    assert not {records.task_of(one) for one in learned} & apart
    for part in (learned, held_out):
        assert 2 * sum(one.success for one in part) == len(part) > 0
    assert sum(one.success for one in learned) == 40 - len(apart)


def test_the_model_that_labels_comes_first_and_those_beside_it_once(tmp_path: Path) -> None:
    run = run_with(tmp_path, [episode(number, 2, success=True) for number in range(20)])
    recipe = load(
        "webrl/sandbox",
        ["preset=smoke", "outcome=noisy", "outcome.compare=[rules,features]",
         "outcome.false_positives=0.1", "outcome.false_negatives=0.2"],
        WebrlRecipe,
    )  # fmt: skip
    models = pipeline.outcome_models(recipe, run)
    assert [type(model) for model in models.values()] == [NoisyOracle, Rules, Features]
    noisy = models["noisy"]
    assert isinstance(noisy, NoisyOracle) and (noisy.false_positives, noisy.false_negatives) == (0.1, 0.2)
    own = load("webrl/sandbox", ["preset=smoke", "outcome=rules", "outcome.compare=[rules]"], WebrlRecipe)
    assert [type(model) for model in pipeline.outcome_models(own, run).values()] == [Rules]
    true = own.model_copy(update={"outcome": own.outcome.model_copy(update={"name": "oracle"})})
    assert [type(model) for model in pipeline.outcome_models(true, run).values()] == [Oracle, Rules]


def test_an_oracle_that_finished_nothing_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Bar:
        advance = None

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None: ...

    for split in RECIPE.splits:
        (tmp_path / f"{split}.jsonl").write_text("")
    run: Any = SimpleNamespace(path=tmp_path, progress=lambda *given: Bar(), say=lambda line: None)
    played = [episode(0, 3, success=True), episode(1, 2), episode(2, 1, success=True)]
    monkeypatch.setattr(playing, "play_chunks", lambda *given, **more: played)
    found = pipeline.demonstrate(RECIPE, run)
    assert (found["demonstrations"], found["steps"]) == (2, 4) and found["tasks"] == RECIPE.tasks.demonstrations
    assert [one.group for one in pipeline.demonstrations(run)] == [0, 2]
    monkeypatch.setattr(playing, "play_chunks", lambda *given, **more: played[1:2])
    with pytest.raises(OneiroError, match="the oracle finished none"):
        pipeline.demonstrate(RECIPE, run)


def test_traces_are_labelled_by_what_they_show() -> None:
    def trace(answer: str) -> Trace:
        steps = [TraceStep(index=0, html="<p>It is 42.</p>", response=f"exit(message='{answer}')")]
        return Trace(trace_id="a", target="What is it?", steps=steps)

    assert rule_labels([trace("42"), trace("43"), trace("")]) == [True, False, False]


def test_a_world_has_no_more_actions_than_the_dialogue_has_turns_and_variants_change_what_they_name() -> None:
    recipe = load("webrl/sandbox", ["preset=smoke", "dialogue.max_turns=7", "world.max_actions=9"], WebrlRecipe)
    assert recipe.world_settings()["max_actions"] == 7 and "templates" not in recipe.world_settings()
    few = load("webrl/sandbox", ["preset=smoke", "dialogue.max_turns=7", "world.max_actions=5"], WebrlRecipe)
    assert few.world_settings()["max_actions"] == 5
    seen, unseen = (recipe.world_settings(split)["templates"] for split in ("test-seen", "test-unseen"))
    assert seen and unseen and not set(seen) & set(unseen)
    assert recipe.of_variant("no-curriculum").curriculum == recipe.curriculum.model_copy(update={"grow": False})
    assert recipe.of_variant("random-tasks").curriculum.choose == "random"
    changed = recipe.of_variant("filtered-bc")
    assert changed.algorithm.name == "filtered-bc" and changed.curriculum == recipe.curriculum
    assert (recipe.attempts, recipe.of_variant("grpo").attempts) == (1, 4)


def test_a_step_is_ranked_by_the_mean_probability_of_its_action(tiny: LanguageModel, tmp_path: Path) -> None:
    rank = ranker(str(tiny.save(tmp_path / "model")))
    prompt, action = tiny.encode("hello world"), tiny.encode("Left Up")
    scores = tiny.model(torch.tensor([[*prompt, *action]])).logits[0].log_softmax(-1).detach()
    expected = [float(scores[len(prompt) - 1 + place, token]) for place, token in enumerate(action)]
    assert rank({"observation": "hello world", "action": "Left Up"}) == pytest.approx(
        np.exp(np.mean(expected)), rel=1e-4
    )
    assert rank({"observation": "", "action": "Up"}) == 0.0 == rank({"observation": "hello", "action": ""})


def test_a_trained_judge_is_read_from_its_checkpoint(tiny: LanguageModel, tmp_path: Path) -> None:
    tiny.save(tmp_path / "checkpoints" / "outcome-lm")
    judge = pipeline.language_judge(RECIPE, SimpleNamespace(path=tmp_path))  # type: ignore[arg-type]
    assert judge.prompt.max_tokens == RECIPE.outcome.max_tokens
    row = judge.prompt.row(episode(0), True, 0.5)
    tokens, weights = torch.tensor([row.tokens.tolist()]), row.weights("ce")
    scores = tiny.model(tokens).logits[0].log_softmax(-1).detach()
    expected = sum(weights[at] * float(scores[at - 1, row.tokens[at]]) for at in range(1, len(weights)))
    assert judge.logprobs([row]) == [pytest.approx(expected, rel=1e-3)]
