"""What each variant changes: the data it learns from, the settings of its arm, and the whole pipeline in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oneiro
from oneiro import worlds
from oneiro.agents.policies import ModelPolicy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import TAG_TOKENS, reasoning_length, write
from oneiro.agents.rollout import attempts, play
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel, train_tokenizer
from oneiro.recipe import load
from oneiro.report.episodes import record
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.systems.spa.data import rows_of, sample_texts
from oneiro.systems.spa.pipeline import VariantRun
from oneiro.systems.spa.recipe import VARIANTS, SpaRecipe
from oneiro.worlds.baselines import mixture

SEEN = "<think><observation>{state}</observation>"
SMALL = [
    "preset=smoke",
    "self_play.levels=8",
    "sft.epochs=0.3",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "rl.steps=1",
    "evaluation.levels=2",
    "evaluation.samples=1",
    "dialogue.max_turns=2",
    "sampling.max_tokens=12",
]
ALL = [
    *SMALL,
    "world.view=spaced+coordinates",
    "dialogue.context=full",
    "self_play.policy=mixture",
    "transfer_world={name: frozen-lake, size: 3, view: spaced}",
]


def recipe(*overrides: str) -> SpaRecipe:
    loaded = load("spa/frozen-lake", overrides)
    assert isinstance(loaded, SpaRecipe)
    return loaded


@pytest.fixture
def chat(tiny: LanguageModel) -> ChatFormat:
    return ChatFormat(tiny.tokenizer)


def three_turns(*replies: str) -> dict[str, Any]:
    turns = [
        {"message": f"m{i}", "reply": reply, "state": f"s{i}", "next_state": f"s{i + 1}"}
        for i, reply in enumerate(replies)
    ]
    return {"turns": turns, "seed": 0}


GOOD, BAD = write(["Up"], "a", "b"), "<think>no states</think><answer>Up</answer>"


def texts(tiny: LanguageModel, chat: ChatFormat, found: dict[str, Any], context: str, keep: bool) -> list[str]:
    settings = DialogueSettings(context=context, brief=True)  # type: ignore[arg-type]
    return [tiny.decode(row.tokens) for row in rows_of(found, chat, settings, VARIANTS["spa"], "<think>", keep)]


def test_the_structural_filter_leaves_out_replies_without_the_form(tiny: LanguageModel, chat: ChatFormat) -> None:
    found = three_turns(GOOD, BAD, GOOD)
    apart = texts(tiny, chat, found, "single", keep=False)
    assert len(apart) == 2 and "m0" in apart[0] and "m2" in apart[1]
    (grown,) = texts(tiny, chat, found, "full", keep=False)
    assert "m0" in grown and "m1" not in grown and "m2" not in grown  # what rests on a malformed reply goes with it
    (whole,) = texts(tiny, chat, found, "full", keep=True)
    assert "no states" in whole and whole.count("<observation>") == 2 and "<observation>s2</observation>" in whole


def test_beliefs_are_kept_where_they_are_what_is_learned(chat: ChatFormat, tiny: LanguageModel) -> None:
    settings = DialogueSettings(context="single", brief=True)
    for variant, states in (("spa", ("s0", "s1")), ("self-belief", ("a", "b"))):
        (row,) = rows_of(three_turns(GOOD), chat, settings, VARIANTS[variant], "", False)
        assert write(["Up"], *states) in tiny.decode(row.tokens)


def test_an_observation_after_its_prediction_is_not_the_form(tiny: LanguageModel, chat: ChatFormat) -> None:
    swapped = "<think><prediction>b</prediction><observation>a</observation></think><answer>Up</answer>"
    assert texts(tiny, chat, three_turns(swapped), "single", keep=False) == []


def test_an_arm_is_taught_with_the_form_it_will_be_asked_for(tiny: LanguageModel, chat: ChatFormat) -> None:
    asked = DialogueSettings(context="single", max_turns=2, actions_per_turn=1)
    played = play(lambda: worlds.make("frozen-lake"), attempts(1, 1, "train", 0), ScriptedPolicy(mixture(1.0)), asked)
    plain = asked.model_copy(update={"world_model": False})
    (row, *_) = rows_of(record(played[0]), chat, plain, VARIANTS["no-world-model"], "", False)
    text = tiny.decode(row.tokens)
    assert plain.form in text and asked.form not in text and "<observation>" not in text
    (row, *_) = rows_of(record(played[0]), chat, asked, VARIANTS["spa"], "", False)
    assert asked.form in tiny.decode(row.tokens)


def test_a_reply_that_begins_with_the_state_is_taught_and_played_alike(tiny: LanguageModel, chat: ChatFormat) -> None:
    """What comes before the first token with a loss is, id for id, what the model is given when it plays."""
    asked, response_prefix = DialogueSettings(context="single", brief=True, max_turns=2), SEEN
    script = ScriptedPolicy(mixture(1.0))
    (told,) = play(lambda: worlds.make("frozen-lake"), attempts(1, 1, "train", 0), script, asked)
    taught = rows_of(record(told), chat, asked, VARIANTS["spa"], response_prefix, False)
    model = ModelPolicy(Engine(tiny, 4), SamplingSettings(max_tokens=2))
    (played,) = play(
        lambda: worlds.make("frozen-lake"), attempts(1, 1, "train", 0), model, asked, chat, 0, response_prefix
    )
    assert (taught[0].prefix == played.rows[0].prefix).all()
    assert tiny.decode(taught[0].prefix).endswith(f"<think><observation>{told.info['turns'][0]['state']}</observation>")
    rest = tiny.decode(taught[0].tokens[len(taught[0].prefix) :])
    assert rest.startswith("<prediction>") and (taught[0].weights("ce")[len(taught[0].prefix) :] == 1).all()
    assert played.info["turns"][0]["reply"].startswith(f"<think><observation>{told.info['turns'][0]['state']}")


def test_where_a_template_rewrites_the_past_a_turn_is_taught_with_all_that_it_is_asked_with(
    tiny: LanguageModel,
) -> None:
    """The rules and the earlier turns stand before the second reply in a lesson as they do in play, id for id."""
    tiny.tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat, asked = ChatFormat(tiny.tokenizer), DialogueSettings(max_turns=3, actions_per_turn=1)
    script = ScriptedPolicy(mixture(1.0))
    (played,) = play(lambda: worlds.make("frozen-lake"), attempts(1, 1, "train", 3), script, asked, chat)
    taught = rows_of(record(played), chat, asked, VARIANTS["spa"], "", False)
    assert chat.rewrites and len(taught) == len(played.rows) > 1
    for lesson, row in zip(taught, played.rows, strict=True):
        assert (lesson.prefix == row.tokens).all() and "frozen lake" in tiny.decode(row.tokens)


def test_an_arm_without_states_is_not_made_to_begin_with_one(tmp_path: Path) -> None:
    recipe = load("spa/frozen-lake", ["preset=smoke", f"response_prefix={SEEN}"])
    assert isinstance(recipe, SpaRecipe)
    run = Run.open(tmp_path, recipe)
    assert (
        VariantRun(recipe, run, "spa").response_prefix == SEEN
        and VariantRun(recipe, run, "no-world-model").response_prefix == "<think>"
    )


@pytest.mark.parametrize("world", ["sudoku", "countdown", "webshop", "bandit"])
def test_a_tokenizer_learns_the_words_of_free_text_actions(world: str) -> None:
    found = sample_texts(lambda: worlds.make(world), DialogueSettings(brief=True), 0, levels=8)
    tokenizer = train_tokenizer(found, 512, TAG_TOKENS)
    game, rng = worlds.make(world), np.random.default_rng(1)
    game.reset(seed=99, options={"split": "train"})
    reply = write([game.random_action(rng)], "?", "?")
    ids = tokenizer.encode(reply, add_special_tokens=False)
    assert tokenizer.decode(ids) == reply and len(ids) < 0.8 * len(reply)
    assert any("<observation>" in text and "<answer>" in text for text in found)


def test_reasoning_ends_where_the_thoughts_are_closed(tiny: LanguageModel) -> None:
    reply = tiny.encode("hello<think>P _ O</think><answer>Up</answer>")
    length = reasoning_length(tiny, np.array(reply, np.int32))
    assert tiny.decode(reply[:length]) == "hello<think>P _ O" and tiny.decode(reply[length : length + 1]) == "</think>"
    assert reasoning_length(tiny, np.array(tiny.encode("hello"), np.int32)) == len(tiny.encode("hello"))


def test_a_variant_changes_the_settings_it_names_and_no_others(tmp_path: Path) -> None:
    found = recipe(
        *ALL, "variants=[spa,echo,online-world-model,epochs-3,unfiltered]", "rl.filter={name: top-p, keep: 0.9}"
    )
    with Run.open(tmp_path / "run", found) as run:
        arms = {name: VariantRun(found, run, name) for name in found.variants}
    assert arms["spa"].rl_settings == found.rl and arms["spa"].sft_settings == found.sft
    assert arms["epochs-3"].sft_settings == found.sft.model_copy(update={"epochs": 3})
    assert arms["online-world-model"].dialogue.state_reward == 0.5 and arms["spa"].dialogue.state_reward == 0
    echo = arms["echo"].rl_settings
    assert echo.environment_ce == 0.1 and echo.filter.name == "none"
    assert echo.learner.optimiser == found.rl.learner.optimiser and not arms["echo"].dialogue.world_model


def test_the_whole_pipeline_with_a_variant_of_each_kind(tmp_path: Path) -> None:
    names = "[spa,transfer,wrong-coordinates,echo,base]"
    run = oneiro.run(
        recipe(*ALL, f"variants={names}", "evaluation.every=1", "collapse_monitor.every=1"), out=tmp_path / "run"
    )
    stages = run.info["stages"]
    assert {"self-play", "self-play-transfer", "self-play-wrong-coordinates", "sft-transfer", "rl-echo"} <= set(stages)
    assert "sft-echo" not in stages and "rl-base" not in stages
    easy = next(read_lines(run.path / "episodes" / "self-play-transfer-000000.jsonl.gz"))
    assert easy["turns"][0]["state"].count("\n") == 2  # three rows, without coordinates
    hard = next(read_lines(run.path / "episodes" / "evaluate-transfer-000000.jsonl.gz"))
    assert hard["turns"][0]["state"].count("\n") == 4  # four rows and the sentence
    metrics = {line["stage"]: line for line in read_lines(run.path / "metrics.jsonl")}
    assert {"mi", "retrieval@1", "pass@2", "eval_success", "response_length", "group_std"} <= set(metrics["rl-spa"])
    assert metrics["rl-echo"]["ce"] > 0 and "ce" not in metrics["rl-spa"]
    summary = json.loads((run.path / "summary.json").read_text())
    assert {"mi", "pass@2", "group_std", "entropy", "response_length"} <= {curve["key"] for curve in summary["curves"]}
    agents = [row["agent"] for row in summary["tables"][0]["rows"]]
    assert agents[0] == "random" and agents[-1] == "ceiling" and "tiny transfer" in agents
    assert [row["agent"] for row in summary["tables"][1]["rows"]] == agents  # by the length of the shortest solution
    assert not any("out of reach" in note for note in summary["notes"])


def test_a_run_says_at_its_start_that_its_levels_are_mostly_out_of_reach(tmp_path: Path) -> None:
    settings = "world.max_actions=1", "variants=[base]", "evaluation.levels=8"
    run = oneiro.run(recipe(*SMALL, *settings), out=tmp_path / "run")
    log = (run.path / "log.txt").read_text()
    before, warning, after = log.partition("frozen-lake is mostly out of reach")
    assert warning and "model tiny" not in before and "model tiny" in after and " in 1 action;" in after
    assert log.count("out of reach") == 1
    (note,) = json.loads((run.path / "summary.json").read_text())["notes"]
    assert note.startswith("frozen-lake is mostly out of reach")


def test_tiny_cannot_play_for_its_own_data(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="'tiny' cannot play yet"):
        oneiro.run(recipe(*ALL, "variants=[spa]", "self_play.policy=self"), out=tmp_path / "run")


UNLIKE = ("copy-state", "shuffled-next", "online-world-model", "unfiltered", "vanilla-rl")
"""Variants that take other ways through the pipeline than those of the test above."""
RUNNABLE = sorted(set(VARIANTS) - {"self-belief", *(f"epochs-{n}" for n in (1, 3, 4, 5))})


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=() if name in UNLIKE else pytest.mark.thorough) for name in RUNNABLE]
)
def test_every_variant_runs_in_small(variant: str, tmp_path: Path) -> None:
    run = oneiro.run(recipe(*ALL, f"variants=[{variant}]"), out=tmp_path / "run")
    assert run.info["status"] == "done"
