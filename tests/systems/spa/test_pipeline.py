"""The SPA pipeline through the command line: every stage, and what a killed run becomes."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import oneiro
from oneiro import cli, worlds
from oneiro.agents.policies import ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts, play
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel, load
from oneiro.recipe import load as load_recipe
from oneiro.report.episodes import record
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.systems.spa.data import rows_of, shuffle_states
from oneiro.systems.spa.recipe import VARIANTS
from oneiro.systems.spa.self_play import lose_batch, play_batch, recorded_play, self_play
from oneiro.worlds.baselines import mixture
from tests.interruption import Forked, fingerprint, kill_in
from tests.systems.spa.test_variants import SMALL


@pytest.mark.slow
def test_a_run_killed_in_its_stages_ends_like_one_left_alone(
    finished: Callable[[str, str], Path], tmp_path: Path, tiny: LanguageModel
) -> None:
    """`tiny` is here for what making it imports: the copies of this process need not."""
    killed = tmp_path / "killed"

    def start() -> Forked:
        return Forked(lambda: oneiro.run("spa/frozen-lake", killed, ["preset=smoke"]))

    assert kill_in(("self-play", "sft-spa", "rl-spa", "evaluate-spa"), killed, start) >= 2
    assert start().wait() == 0
    assert fingerprint(killed) == fingerprint(finished("spa/frozen-lake", "smoke"))


def test_a_finished_run_leaves_a_model_anyone_can_load(finished: Callable[[str, str], Path], tmp_path: Path) -> None:
    run = finished("spa/frozen-lake", "smoke")
    summary = json.loads((run / "summary.json").read_text())
    agents = [row["agent"] for row in summary["tables"][0]["rows"]]
    assert agents == ["random", "tiny no-world-model", "tiny spa", "ceiling"]
    assert (run / "report.html").stat().st_size > 10_000
    model = str(run / "checkpoints" / "rl-spa")
    language = load(model)
    assert language.metadata["world"]["name"] == "frozen-lake"
    out = tmp_path / "table.json"
    command = ["eval", "agent", "--world", "frozen-lake", "--model", model]
    assert cli.main([*command, "--levels", "4", "--samples", "2", "--json", str(out)]) == 0
    assert "ceiling" in out.read_text()


def test_processes_play_what_one_would_have_played(tmp_path: Path) -> None:
    """Also where a batch was already there."""
    overrides = ["preset=smoke", "self_play.policy=exploration", "self_play.group_size=2", "self_play.batches=3"]
    with Run.open(tmp_path / "one", recipe := load_recipe("spa/frozen-lake", overrides)) as one:
        told = self_play(recipe, one, "spa")
    with Run.open(
        tmp_path / "two", recipe := load_recipe("spa/frozen-lake", [*overrides, "self_play.workers=2"])
    ) as two:
        play_batch(recipe, two.path, "spa", 1)
        assert self_play(recipe, two, "spa") == told
    names = [f"self-play-00000{batch}.jsonl.gz" for batch in range(3)]
    assert sorted(path.name for path in (two.path / "episodes").iterdir()) == names
    assert all(
        (two.path / "episodes" / name).read_bytes() == (one.path / "episodes" / name).read_bytes() for name in names
    )


def test_a_batch_that_kills_its_processes_is_lost_alone_and_said(tmp_path: Path) -> None:
    overrides = ["preset=smoke", "self_play.batches=2", "self_play.levels=3"]
    recipe = load_recipe("spa/frozen-lake", overrides)
    with Run.open(tmp_path / "run", recipe) as run:
        lose_batch(recipe, run.path, "spa", 1)
        found = self_play(recipe, run, "spa")
        assert (found["episodes"], found["errors"]) == (24, 24)
        assert "batch 1 was lost" in (run.path / "log.txt").read_text()
        assert len(list(recorded_play(recipe, run, "spa"))) == 24
        lose_batch(recipe, run.path, "spa", 0)
        with pytest.raises(OneiroError, match="every process that played died"):
            self_play(recipe, run, "spa")


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage", gzip.compress(b'{"turns": 5}\n', mtime=0), gzip.compress(b"[1]\n", mtime=0)],
    ids=["empty", "garbage", "no turns", "a list"],
)
def test_a_damaged_batch_is_named_and_played_again_when_it_is_deleted(tmp_path: Path, data: bytes) -> None:
    recipe = load_recipe("spa/frozen-lake", ["preset=smoke", "self_play.batches=2", "self_play.levels=3"])
    with Run.open(tmp_path / "run", recipe) as run:
        told = self_play(recipe, run, "spa")
        file = run.path / "episodes" / "self-play-000001.jsonl.gz"
        whole = file.read_bytes()
        file.write_bytes(data)
        with pytest.raises(OneiroError, match=r"self-play-000001.*delete that file"):
            list(recorded_play(recipe, run, "spa"))
        file.unlink()
        assert self_play(recipe, run, "spa") == told and file.read_bytes() == whole


def test_weights_that_are_gone_or_damaged_are_trained_again_never_replaced_by_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = oneiro.run("spa/frozen-lake", tmp_path / "run", [*SMALL, "variants=[spa]"]).path
    whole, logged = fingerprint(run), (run / "metrics.jsonl").read_text().splitlines()
    info = json.loads((run / "run.json").read_text())
    info["status"] = "running"
    del info["stages"]["rl-spa"], info["stages"]["evaluate-spa"], info["stages"]["compare"]
    (run / "run.json").write_text(json.dumps(info))
    shutil.rmtree(run / "checkpoints" / "rl-spa")
    weights = next(run.glob("checkpoints/sft-spa/step-*/model/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert cli.main(["run", str(run)]) == 2
    assert "damaged" in capsys.readouterr().err
    shutil.rmtree(run / "checkpoints" / "sft-spa")
    assert cli.main(["run", str(run)]) == 2
    assert "holds no checkpoint, though its stage is done" in capsys.readouterr().err
    (run / "run.json").unlink()
    assert cli.main(["run", str(run)]) == 0
    again = fingerprint(run)
    assert {**again, "metrics.jsonl": ""} == {**whole, "metrics.jsonl": ""}
    assert sorted((run / "metrics.jsonl").read_text().splitlines()) == sorted(logged)  # stages in another order


@pytest.fixture
def chat(tiny: LanguageModel) -> ChatFormat:
    return ChatFormat(tiny.tokenizer)


def records(dialogue: DialogueSettings) -> list[dict]:
    played = play(
        lambda: worlds.make("frozen-lake", view="spaced"),
        attempts(6, 1, "train", 0),
        ScriptedPolicy(mixture(0.5)),
        dialogue,
    )
    return [record(episode) for episode in played]


def test_data_holds_the_true_states_and_the_loss_covers_the_reply(tiny: LanguageModel, chat: ChatFormat) -> None:
    dialogue = DialogueSettings(context="single", brief=True, max_turns=10, actions_per_turn=1)
    for found in records(dialogue):
        rows = rows_of(found, chat, dialogue, VARIANTS["spa"], "<think>", False)
        assert len(rows) == len(found["turns"])
        for row, turn in zip(rows, found["turns"], strict=True):
            text = tiny.decode(row.tokens)
            assert f"<observation>{turn['state']}</observation><prediction>{turn['next_state']}</prediction>" in text
            learned = tiny.decode(row.tokens[row.weights("ce") > 0])
            assert learned == text.split("assistant\n<think>")[1]


def test_masked_states_leave_only_the_states_out(tiny: LanguageModel, chat: ChatFormat) -> None:
    dialogue = DialogueSettings(context="single", brief=True, max_turns=10, actions_per_turn=1)
    (found, *_) = records(dialogue)
    row, *_ = rows_of(found, chat, dialogue, VARIANTS["masked-states"], "", False)
    learned = tiny.decode(row.tokens[row.weights("ce") > 0])
    action = found["turns"][0]["actions"][0]
    assert learned == (
        f"<think><observation></observation><prediction></prediction></think><answer>{action}</answer><|im_end|>"
    )


def test_the_control_that_copies_predicts_the_present_state_in_as_many_characters(
    tiny: LanguageModel, chat: ChatFormat
) -> None:
    dialogue = DialogueSettings(context="single", brief=True, max_turns=10, actions_per_turn=1)
    for found in records(dialogue):
        for turn, spa, copy in zip(
            found["turns"],
            rows_of(found, chat, dialogue, VARIANTS["spa"], "<think>", False),
            rows_of(found, chat, dialogue, VARIANTS["copy-state"], "<think>", False),
            strict=True,
        ):
            assert f"<prediction>{turn['state']}</prediction>" in tiny.decode(copy.tokens)
            assert len(tiny.decode(spa.tokens)) == len(tiny.decode(copy.tokens))


def test_the_control_that_shuffles_predicts_the_next_states_of_other_turns_at_its_level(
    tiny: LanguageModel, chat: ChatFormat
) -> None:
    dialogue = DialogueSettings(context="single", brief=True, max_turns=10, actions_per_turn=1)
    shuffled = shuffle_states(records(dialogue), 0)
    assert shuffled == shuffle_states(records(dialogue), 0)
    written = 0
    for episode in shuffled:
        states = {turn["next_state"] for turn in episode["turns"]}  # one attempt at each level
        rows = rows_of(episode, chat, dialogue, VARIANTS["shuffled-next"], "<think>", False)
        for turn, row in zip(episode["turns"], rows, strict=True):
            other = turn["shuffled_state"]
            assert other in states - {turn["next_state"]} if len(states) > 1 else other == turn["state"]
            assert f"<prediction>{other}</prediction>" in tiny.decode(row.tokens)
            written += len(states) > 1
    assert written


def test_a_growing_dialogue_becomes_one_row(chat: ChatFormat, tiny: LanguageModel) -> None:
    dialogue = DialogueSettings(context="full", max_turns=10, actions_per_turn=1)
    for found in records(dialogue):
        (row,) = rows_of(found, chat, dialogue, VARIANTS["no-world-model"], "<think>", False)
        text = tiny.decode(row.tokens)
        assert "<observation>" not in text.split("Turn 1")[1].replace("<observation>[current state]", "")
        assert text.count("<|im_start|>assistant") == len(found["turns"])
