"""Files in the formats of verl, RLVR-World and SPA become dialogues and rows of SFT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oneiro.adapters.verl import Dialogue, read_dialogues, sft_rows
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError

SYSTEM, USER = {"role": "system", "content": "Play."}, {"role": "user", "content": "P _"}
SPA = {
    "data_source": "sokoban",
    "prompt": [SYSTEM, USER],
    "response": "<think></think><answer>Up</answer>",
    "ability": "world_model",
    "reward_model": {"style": "rule", "ground_truth": ""},
    "extra_info": {"index": 0},
}
RLVR = {
    "data_source": "llm_simulator",
    "prompt": [USER],
    "ability": "text_game",
    "reward_model": {"style": "rule", "ground_truth": '{"1": {}}'},
}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))
    return path


@pytest.mark.parametrize("kind", ["parquet", "json", "jsonl"])
def test_rows_of_sft_and_of_rl_are_read_from_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    (sft,) = read_dialogues(write(tmp_path / f"wm_train.{kind}", [SPA]))
    assert sft == Dialogue([SYSTEM, USER], "<think></think><answer>Up</answer>", "", "sokoban")
    (rl,) = read_dialogues(write(tmp_path / f"train.{kind}", [RLVR]))
    assert rl == Dialogue([USER], None, '{"1": {}}', "llm_simulator")
    reply = {"role": "assistant", "content": "Up"}
    (turns,) = read_dialogues(write(tmp_path / f"turns.{kind}", [{"messages": [SYSTEM, USER, reply]}]))
    assert (turns.messages, turns.response) == ([SYSTEM, USER], "Up")


def test_the_loss_is_on_the_answer_alone(tmp_path: Path, tiny: LanguageModel) -> None:
    dialogues = read_dialogues(write(tmp_path / "rows.jsonl", [SPA, RLVR, {"prompt": "P _", "answer": "Up"}]))
    long, short = sft_rows(dialogues, tiny)  # the prompt of RL has no answer to learn
    learned = long.tokens[long.weights("ce") > 0]
    assert tiny.tokenizer.decode(learned) == SPA["response"] + "<|im_end|>"
    before = tiny.tokenizer.decode(long.tokens[long.weights("ce") == 0])
    assert before == "<|im_start|>system\nPlay.<|im_end|>\n<|im_start|>user\nP _<|im_end|>\n<|im_start|>assistant\n"
    assert tiny.tokenizer.decode(short.tokens[short.weights("ce") > 0]) == "Up<|im_end|>"


def test_a_wrong_file_is_one_line(tmp_path: Path) -> None:
    for name, content in {"a.parquet": "PAR1", "b.json": "{", "c.jsonl": "[" * 100_000, "d.json": "3"}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(OneiroError, match=r"cannot be read|one JSON object"):
            read_dialogues(tmp_path / name)
    with pytest.raises(OneiroError, match="row 2: no dialogue"):
        read_dialogues(write(tmp_path / "e.json", [RLVR, {"text": "x"}]))
    with pytest.raises(OneiroError, match="does not exist"):
        read_dialogues(tmp_path / "nothing.json")
