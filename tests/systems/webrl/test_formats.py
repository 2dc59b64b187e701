"""WebRL's published layouts, there and back, on files made as its specification says."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch

from oneiro import cli
from oneiro.runtime.errors import OneiroError
from oneiro.systems.webrl import formats, task_files
from oneiro.systems.webrl.formats import PLACEHOLDER, Trace, TraceStep

INTENT = "What is the price of the teapot?"
PAGES = ['<html> <a id="1"> Teapots </a> </html>', "<html> $12.50 </html>"]
REPLIES = ['# Element: the link\ndo(action="Click", element="1")', 'exit(message="$12.50")']


def trace(name: str = "7", score: float = 1.0) -> Trace:
    steps = [TraceStep(i, page, reply) for i, (page, reply) in enumerate(zip(PAGES, REPLIES, strict=True))]
    steps[0].prompt = INTENT
    return Trace(name, INTENT, steps, score)


def test_traces_come_back_as_they_were_written(tmp_path: Path) -> None:
    formats.write_traces(tmp_path, [trace("7"), trace("12", 0.0)])
    lines = (tmp_path / "traces" / "7.jsonl").read_text().splitlines()
    assert list(json.loads(lines[0])) == ["trace_id", "index", "prompt", "html", "response", "target"]
    assert [json.loads(line)["prompt"] for line in lines] == [INTENT, PLACEHOLDER]
    actions = json.loads((tmp_path / "actions" / "7.json").read_text())
    assert actions == {"task_id": "7", "score": 1.0, "actions": REPLIES}
    read = formats.read_traces(tmp_path)
    assert read.problems == [] and read.traces == [trace("12", 0.0), trace("7")]


def test_a_malformed_trace_is_named_by_file_and_line_and_left_out(tmp_path: Path) -> None:
    formats.write_traces(tmp_path, [trace("1"), trace("2"), trace("3"), trace("4"), trace("5")])
    second = tmp_path / "traces" / "2.jsonl"
    second.write_text(second.read_text().splitlines()[0] + "\n{half a line\n")
    third = tmp_path / "traces" / "3.jsonl"
    rows = [json.loads(line) for line in third.read_text().splitlines()]
    third.write_text("".join(json.dumps({**row, "response": 3}) + "\n" for row in rows))
    (tmp_path / "actions" / "4.json").write_text('{"score": -0.1}')
    (tmp_path / "actions" / "5.json").unlink()
    read = formats.read_traces(tmp_path)
    assert [t.trace_id for t in read.traces] == ["1"]
    told = [str(problem) for problem in read.problems]
    assert "2.jsonl, line 2: is no JSON" in told[0]
    assert "3.jsonl, line 1: 'response' is int" in told[1] and "line 2" in told[2]
    assert "4.json: the episode has not ended" in told[3]
    assert "5.json: no score" in told[4]


def test_the_empty_last_response_of_a_stopped_episode_is_no_action(tmp_path: Path) -> None:
    stopped = trace("9", 0.0)
    stopped.steps.append(TraceStep(2, "<html/>", ""))
    formats.write_traces(tmp_path, [stopped])
    (read,) = formats.read_traces(tmp_path).traces
    assert [step.response for step in read.steps] == REPLIES


def test_the_prompt_shows_all_responses_and_one_page() -> None:
    text = formats.policy_prompt(INTENT, [REPLIES[0]], PAGES[1])
    user, assistant = "<|start_header_id|>user<|end_header_id|>", "<|start_header_id|>assistant<|end_header_id|>"
    assert text == (
        f"Task Instruction: {INTENT}\n\nRound 0\n\n<|eot_id|>{user}\n{INTENT}\n\n<|eot_id|>{assistant}\n{REPLIES[0]}"
        f"\n\nRound 1\n\n<|eot_id|>{user}\n{PAGES[1]}\n\n<|eot_id|>{assistant}\n"
    )
    short = formats.policy_prompt(INTENT, [REPLIES[0]], "x" * 10_000, max_characters=600)
    assert len(short) == 600 and short.endswith(f"\n\n<|eot_id|>{assistant}\n")


def test_stage_1_puts_the_reward_on_the_last_step_and_stage_2_replays_by_rank(tmp_path: Path) -> None:
    steps = formats.process_trace(trace(), success=True)
    assert [step["reward"] for step in steps] == [0.0, 1.0]
    assert [step["done"] for step in steps] == [False, True]
    assert [step["trajectory_reward"] for step in steps] == [1, 1]
    assert steps[0]["next_observation"] == steps[1]["observation"]
    assert steps[1]["next_observation"].count("Round 2") == 1 and PAGES[1] in steps[1]["next_observation"]
    assert [s["mc_return"] for s in formats.with_returns(steps)] == [0.9, 1.0]
    copied = formats.with_returns(formats.process_trace(trace(), True, copied=True))
    assert [s["mc_return"] for s in copied] == [1.9, 1.0]
    formats.write_processed(tmp_path / "p.jsonl", [steps])
    read, problems = formats.read_processed(tmp_path / "p.jsonl")
    assert read == [steps] and problems == []
    past = [formats.process_trace(Trace("a", f"task {n}", trace().steps), True) for n in range(9)]
    failed = formats.process_trace(Trace("b", "failed", trace().steps), False)
    ranks = {REPLIES[0]: 0.7, REPLIES[1]: 0.99}
    flat = formats.select_steps(
        [steps], [*past, past[0], failed], lambda s: ranks[s["action"]], (0.5, 0.95), 2.0, seed=0
    )
    replayed = [step for step in flat if "rank_score" in step]
    assert len(flat) == 2 + 4 and len(replayed) == 4
    assert {step["action"] for step in replayed} == {REPLIES[0]} and len({step["task"] for step in replayed}) == 4
    formats.write_filtered(tmp_path / "f.jsonl", flat)
    again, _ = formats.read_processed(tmp_path / "f.jsonl")
    assert [step for part in again for step in part] == flat


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (eval, ("1/0",))


def test_a_pt_file_is_read_without_running_anything(tmp_path: Path) -> None:
    steps = formats.process_trace(trace(), True)
    torch.save([steps], tmp_path / "good.pt")
    assert formats.read_processed(tmp_path / "good.pt") == ([steps], [])
    torch.save([[{**steps[0], "action": 5}], steps], tmp_path / "half.pt")
    found, problems = formats.read_processed(tmp_path / "half.pt")
    assert found == [steps] and "line 1: 'action' is int" in str(problems[0])
    torch.save([Evil()], tmp_path / "evil.pt")
    (tmp_path / "bare.pt").write_bytes(pickle.dumps([Evil()]))
    for name in ("evil.pt", "bare.pt"):
        with pytest.raises(OneiroError, match="not opened"):
            formats.read_processed(tmp_path / name)


def test_a_file_above_256_mb_is_reported_and_not_read(tmp_path: Path) -> None:
    formats.write_traces(tmp_path, [trace("1"), trace("2")])
    for path in (tmp_path / "traces" / "2.jsonl", tmp_path / "large.pt"):
        with path.open("ab") as file:
            file.truncate(256 * 2**20 + 1)  # takes no room on the disk
    read = formats.read_traces(tmp_path)
    assert [t.trace_id for t in read.traces] == ["1"] and "2.jsonl: larger than 256 MB" in str(read.problems[0])
    with pytest.raises(OneiroError, match=r"large.pt is larger than 256 MB; split it"):
        formats.read_processed(tmp_path / "large.pt")


def test_task_configs_and_sft_data_have_the_published_fields(tmp_path: Path) -> None:
    from oneiro_web.tasks import read_task
    from oneiro_web.urls import Places

    config = task_files.task_config(INTENT, "shopping", 3)
    assert config["start_url"] == "__SHOPPING__" and config["eval"]["reference_answers"] == {"exact_match": "N/A"}
    task = read_task(config, Places({"shopping": "http://shop.example"}))
    assert task.intent == INTENT and task.start_urls == ("http://shop.example",)
    with pytest.raises(OneiroError, match="no site"):
        task_files.task_config(INTENT, "cms", 3)
    records = task_files.sharegpt(trace())
    pairs = [[turn["value"] for turn in record["conversations"]] for record in records]
    assert [response for _, response in pairs] == REPLIES and pairs[0][0].endswith("assistant<|end_header_id|>\n")
    (tmp_path / "failed.jsonl").write_text('{"web": "oss", "task": "a"}\n{"web": "moon", "task": "b"}\n[]\n')
    found, problems = task_files.read_failures(tmp_path / "failed.jsonl")
    assert found == [("shopping", "a")] and [problem.line for problem in problems] == [2, 3]


def test_the_commands_go_from_traces_to_steps_and_from_failures_to_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats.write_traces(tmp_path / "run", [trace("1"), trace("2", 0.0)])
    (tmp_path / "run" / "traces" / "3.jsonl").write_text("oops\n")
    out = tmp_path / "p.jsonl"
    assert cli.main(["data", "webrl", "import", "--from", str(tmp_path / "run"), "--out", str(out)]) == 0
    assert "3.jsonl, line 1" in capsys.readouterr().err
    read, _ = formats.read_processed(out)
    assert [steps[-1]["trajectory_reward"] for steps in read] == [1, 0]
    argument = ["data", "webrl", "process", "--from", str(tmp_path / "run"), "--out", str(tmp_path / "q.jsonl")]
    assert cli.main(argument) == 0
    assert (tmp_path / "q_filter.jsonl").exists()
    assert cli.main([*argument, "--experience", str(out)]) == 2
    assert "--actor" in capsys.readouterr().err
    failed = tmp_path / "failed.jsonl"
    failed.write_text('{"web": "map", "task": "What is the phone number of Nowhere Inn?"}\n')
    command = ["data", "webrl", "generate", "--failures", str(failed), "--out", str(tmp_path / "tasks"), "--tasks", "2"]
    assert cli.main(command) == 0
    made = json.loads((tmp_path / "tasks" / "tasks.json").read_text())
    assert len(made) == 2 and all(task["spec"]["checks"] for task in made)
