"""The WebRL pipeline through the command line: every stage, and what a killed run becomes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import oneiro
from oneiro import cli
from oneiro.recipe import load as load_recipe
from oneiro.rundir.records import read_lines
from oneiro.runtime.errors import OneiroError
from oneiro.systems.webrl import episodes as records
from oneiro.systems.webrl import phases, pipeline
from oneiro.systems.webrl.curriculum.operators import task_key
from oneiro.systems.webrl.phases import Phases
from oneiro.systems.webrl.recipe import OBJECTIVES, WebrlRecipe
from oneiro_web.tasks import Task
from tests.interruption import Forked, fingerprint, kill_in

ONE_PHASE = ["preset=smoke", "phases=1", "evaluation.tasks=2"]


def write_json_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def phase_files(run: Path) -> dict[str, str]:
    found = [path for path in sorted(run.glob("**/phase_*/**/*")) if path.is_file()]
    return {str(p.relative_to(run)): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}


@pytest.mark.parametrize(
    ("variants", "moments"),
    [
        pytest.param("[random-tasks]", ["phase-1-actor"], id="once"),
        pytest.param(
            "[no-curriculum,random-tasks]",
            ["phase-1-rollout", "phase-1-actor", "no-curriculum-phase-1-rollout", "random-tasks-phase-1-tasks"],
            id="again and again",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_13_kill_and_resume_gives_the_same_bytes(variants: str, moments: list[str], tmp_path: Path) -> None:
    alone, killed, settings = tmp_path / "alone", tmp_path / "killed", [*ONE_PHASE, f"variants={variants}"]
    oneiro.run("webrl/sandbox", out=alone, overrides=settings)
    assert kill_in(moments, killed, lambda: Forked(lambda: oneiro.run("webrl/sandbox", killed, settings))) >= 1
    oneiro.run(str(killed))
    assert fingerprint(killed) == fingerprint(alone)
    assert phase_files(killed) == phase_files(alone)


def test_a_finished_run_has_every_phase_on_disk_and_a_model_that_evaluates(
    finished: Callable[[str, str], Path], tmp_path: Path
) -> None:
    run = finished("webrl/sandbox", "smoke")
    for k in (1, 2):
        folder = run / f"phase_{k}"
        for name in ("tasks.jsonl", "labels.jsonl", "steps.jsonl", "replay_selected.jsonl", "metrics.json"):
            assert (folder / name).exists(), (k, name)
        assert list((folder / "rollouts").glob("*.jsonl"))
        assert (folder / "actor" / "oneiro.json").exists() and list((folder / "critic").iterdir())
        metrics = json.loads((folder / "metrics.json").read_text())
        assert set(metrics["evaluate"]) == {"test-seen", "test-unseen"}
    assert not (run / "filtered-bc" / "phase_2" / "rollouts").exists()  # it is offline
    tests = [Task.model_validate(row) for s in ("seen", "unseen") for row in read_lines(run / f"test-{s}.jsonl")]
    rows = [row for k in (0, 1, 2) for row in read_lines(run / f"phase_{k}" / "tasks.jsonl")]
    assert not {task_key(t) for t in tests} & {task_key(Task.model_validate(row["task"])) for row in rows}
    titles = [table["title"] for table in json.loads((run / "summary.json").read_text())["tables"]]
    for words in ("Success on test tasks", "Paired differences", "by site", "Outcome models", "Tasks of webrl"):
        assert any(words in title for title in titles), words
    out = tmp_path / "table.json"
    command = ["eval", "agent", "--world", "web", "--model", str(run / "phase_2" / "actor"), "--split", "test-unseen"]
    assert cli.main([*command, "--browser", "text", "--levels", "3", "--samples", "1", "--json", str(out)]) == 0
    agents = [row["agent"] for row in json.loads(out.read_text())["rows"]]
    assert agents[0] == "random" and agents[1].endswith("actor")


def test_without_a_curriculum_the_given_tasks_are_attempted_in_turn(tmp_path: Path) -> None:
    given = [{"task": {"task_id": f"g{number}"}} for number in range(3)]
    write_json_lines(tmp_path / "phase_0" / "tasks.jsonl", given)
    recipe = load_recipe("webrl/sandbox", ["curriculum.tasks=5"])
    assert isinstance(recipe, WebrlRecipe)
    run = SimpleNamespace(path=tmp_path)
    phases = Phases(recipe, run, "no-curriculum")  # type: ignore[arg-type]
    seen = []
    for k in (1, 2):
        assert phases.tasks(k)["origins"] == {"given": 5}
        seen += [
            row["task"]["task_id"] for row in read_lines(tmp_path / "no-curriculum" / f"phase_{k}" / "tasks.jsonl")
        ]
    assert seen == ["g0", "g1", "g2", "g0", "g1", "g2", "g0", "g1", "g2", "g0"]


def test_a_variant_plays_its_own_first_phase_only_where_its_tasks_come_about_otherwise(
    finished: Callable[[str, str], Path],
) -> None:
    run = finished("webrl/sandbox", "smoke")
    keys: dict[str, list[str]] = {}
    for name in ("", "no-curriculum", "random-tasks"):
        rows = [row for k in (1, 2) for row in read_lines(run / name / f"phase_{k}" / "tasks.jsonl")]
        keys[name] = [task_key(Task.model_validate(row["task"])) for row in rows]
        assert all((run / name / f"phase_{k}" / "rollouts").is_dir() for k in (1, 2))
        if name == "random-tasks":
            assert {row["origin"] for row in rows} == {"new"} and {row["value"] for row in rows} == {None}
    assert not (run / "filtered-bc" / "phase_1" / "rollouts").exists()
    given = [task_key(Task.model_validate(row["task"])) for row in read_lines(run / "phase_0" / "tasks.jsonl")]
    assert keys["no-curriculum"] == given
    for name in ("", "random-tasks"):
        assert len(set(keys[name])) == 12 and not set(keys[name]) & set(given)
    assert keys["random-tasks"] != keys[""]


@pytest.mark.slow
def test_a_language_model_goes_through_a_phase_and_sft_goes_on_beside_it(tmp_path: Path) -> None:
    few = ["phases=1", "variants=[]", "evaluation.tasks=2", "outcome.compare=[]", "tasks.demonstrations=6"]
    run = oneiro.run("webrl/sandbox", tmp_path / "run", ["model=tiny", "preset=smoke", *few])
    stages = run.info["stages"]
    turns = stages["demonstrations"]["result"]["steps"]
    assert stages["sft-continued"]["result"] == {"rows": turns, **stages["sft-continued-budget"]["result"]}
    learned, continued = (
        load_file(run.path / "checkpoints" / name / "model" / "model.safetensors") for name in ("sft", "sft-continued")
    )
    assert any((learned[name] != continued[name]).any() for name in learned)
    success = json.loads((run.path / "summary.json").read_text())["tables"][0]
    assert [row["agent"] for row in success["rows"]] == ["SFT", "webrl", "SFT continued"]


def test_sft_that_goes_on_has_the_seconds_of_the_phases_without_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("webrl/sandbox", ["model=tiny", "phases=2", "variants=[random-tasks]"])
    assert isinstance(recipe, WebrlRecipe)
    run: Any = SimpleNamespace(path=Path("run"), stage=lambda *given: None)
    own, other = Phases(recipe, run), Phases(recipe, run, "random-tasks")
    names = [*own.stage_names(), *other.stage_names()]
    run.info = {"stages": {name: {"seconds": 2.0**place} for place, name in enumerate(names)}}
    given: list[float] = []
    monkeypatch.setattr(
        pipeline.stages, "continue_sft", lambda run, settings, begin, spent, seed: given.append(spent())
    )
    pipeline.continue_sft(recipe, run, own)
    spent = [2.0**place for place, name in enumerate(own.stage_names()) if "evaluate" not in name]
    assert given == [sum(spent)] and len(spent) == 2 * 6


def test_a_finished_run_says_that_it_is(finished: Callable[[str, str], Path], tmp_path: Path) -> None:
    path = shutil.copytree(finished("webrl/sandbox", "smoke"), tmp_path / "run")
    oneiro.run(path)
    assert f"{path} is finished; its report is written again" in (path / "log.txt").read_text()


def test_a_phase_comes_out_as_the_published_traces(finished: Callable[[str, str], Path], tmp_path: Path) -> None:
    from oneiro.systems.webrl import formats

    run = finished("webrl/sandbox", "smoke")
    assert cli.main(["data", "webrl", "export", str(run), "--phase", "1", "--out", str(tmp_path)]) == 0
    read = formats.read_traces(tmp_path)
    assert len(read.traces) == 6 and read.problems == []


def test_an_unknown_split_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", "agent", "--world", "web", "--policy", "oracle", "--levels", "2", "--samples", "1"]
    assert cli.main([*command, "--split", "test-unsen"]) == 2
    assert "test-unseen" in capsys.readouterr().err


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_switch_names_the_objective(name: str) -> None:
    recipe = load_recipe("webrl/sandbox", [f"algorithm={name}", "model=tiny"])
    assert isinstance(recipe, WebrlRecipe) and recipe.algorithm.name == name
    assert recipe.attempts == (4 if name in ("grpo", "state-grpo", "ppo") else 1)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["algorithm=grpo", "group_size=1"], "group_size"),
        (["algorithm=ppo"], "language model"),
        (["outcome=lm"], "language model"),
        (["dialogue.context=full"], "context"),
        (["variants=[no-curiculum]"], "no-curriculum"),
        (["tasks.unseen=[map/phone]", "tasks.trained=[map/phone,map/hours]"], "unseen and as trained"),
        (["world.sites=[map]"], "tasks.sites"),
    ],
)
def test_combinations_that_make_no_sense_are_one_line(overrides: list[str], words: str) -> None:
    with pytest.raises(OneiroError, match=words):
        load_recipe("webrl/sandbox", overrides)


class RecordingCritic:
    """Notes what it learns from and what it is asked about."""

    def __init__(self) -> None:
        self.learned: list[Any] = []
        self.judged: list[Any] = []

    def fit(self, turns: Sequence[Any], outcomes: Sequence[float], seed: int, log: Any) -> dict[str, float]:
        self.learned = list(turns)
        return {"loss": 0.0}

    def values(self, turns: Sequence[Any]) -> np.ndarray:
        self.judged = list(turns)
        return np.arange(len(turns), dtype=np.float32)

    def save(self, folder: Path) -> None: ...


def test_a_critic_is_measured_on_tasks_that_it_did_not_learn(
    finished: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe("webrl/sandbox", ["preset=smoke"])
    assert isinstance(recipe, WebrlRecipe)
    nothing = lambda *given: None  # noqa: E731
    run: Any = SimpleNamespace(path=finished("webrl/sandbox", "smoke"), rewind=nothing, log=nothing)
    critic = RecordingCritic()
    monkeypatch.setattr(phases.agents, "critic_after", lambda *given: critic)
    monkeypatch.setattr(phases, "FRESH_TASKS", 2)
    made = phases.Phases(recipe, run)
    monkeypatch.setattr(made, "drop", nothing)
    made.critic(1)
    episodes, _ = made.read_labelled(1)
    fresh = [turn for e in episodes if e.group % 2 for turn in records.turns_of(e)]
    others = [turn for e in episodes if not e.group % 2 for turn in records.turns_of(e)]
    assert fresh and all(turn in critic.learned for turn in others)
    assert not any(turn in critic.learned for turn in fresh if turn not in others)
    assert critic.judged == [records.turns_of(e)[0] for e in episodes if e.group % 2]


def test_a_band_of_all_probabilities_scores_no_turn(finished: Callable[[str, str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"  # the stage writes what it chose
    shutil.copytree(finished("webrl/sandbox", "smoke"), folder)
    run: Any = SimpleNamespace(path=folder)

    def replay(band: str) -> dict[str, Any]:
        recipe = load_recipe("webrl/sandbox", ["preset=smoke", f"replay.band={band}"])
        assert isinstance(recipe, WebrlRecipe)
        made = phases.Phases(recipe, run)
        made.actor_after = None  # type: ignore[assignment, method-assign]  # nobody is asked
        return made.replay(1)

    assert (counts := replay("[0.0,1.0]"))["in_band"] == counts["stored"] > 0
    with pytest.raises(TypeError, match="not callable"):
        replay("[0.1,1.0]")


def test_the_band_is_used_where_the_critic_discriminates() -> None:
    recipe = load_recipe("webrl/sandbox", ["preset=smoke", "curriculum.min_auc=0.6"])
    assert isinstance(recipe, WebrlRecipe)
    for auc, used in ((0.59, False), (0.6, True), (None, False)):
        run: Any = SimpleNamespace(path=Path("run"), result=lambda name, auc=auc: {"auc": auc})
        assert phases.Phases(recipe, run).discriminates(1) is used


def test_phases_between_two_evaluations_have_none_and_the_last_has_one() -> None:
    recipe = load_recipe("webrl/sandbox", ["phases=5", "evaluation.every=2"])
    assert isinstance(recipe, WebrlRecipe)
    run: Any = SimpleNamespace(path=Path("run"))
    names = phases.Phases(recipe, run).stage_names()
    assert [name for name in names if "evaluate" in name] == [f"phase-{k}-evaluate" for k in (2, 4, 5)]


def test_the_solved_share_of_a_task_counts_its_labelled_successes() -> None:
    episodes: Any = [SimpleNamespace(group=group) for group in (0, 0, 1, 1, 1)]
    assert records.solved_shares(episodes, [1, 0, None, 0, 1], 3) == [0.5, pytest.approx(1 / 3), 0.0]
