"""`vf-validate` and `vf-eval` on FrozenLake and Sokoban, with a server that makes fixed moves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from chat_server import serve

Path("lake_levels.py").write_text(
    'from oneiro.adapters.verifiers import WorldEnv, WorldTaskset\n\n__all__ = ["WorldEnv", "WorldTaskset"]\n'
)
url = serve(["<think>go</think><answer>Right</answer>", "<think>go</think><answer>Down</answer>"])
environment = {
    **os.environ,
    "PYTHONPATH": f".{os.pathsep}{os.environ['PYTHONPATH']}",
    "KEY": "none",
    "NO_PROXY": "127.0.0.1",
}


def vf(command: str, *arguments: str) -> None:
    done = subprocess.run([command, "lake_levels", *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}")


vf("vf-validate", "--only-gold", "--taskset.levels", "8", "-o", "validated", "--runtime.type", "subprocess")
results = [json.loads(line) for path in Path("validated").rglob("results.jsonl") for line in path.open()]
vf(
    "vf-eval", "-r", "2", "-m", "mover", "--no-push", "-o", "evaluated",
    "--env.taskset.world", "sokoban", "--env.taskset.levels", "4", "--env.taskset.split", "eval",
    "--env.taskset.dialogue", '{"max_turns": 4}',
    "--client.base-url", url, "--client.api-key-var", "KEY",
)  # fmt: skip
traces = [json.loads(line) for path in Path("evaluated").rglob("traces.jsonl") for line in path.open()]
played = [
    {
        "seed": episode["task"]["data"]["info"]["seed"],
        "ok": episode["ok"],
        "rewards": {name: reward["score"] for name, reward in episode["traces"][0]["rewards"].items()},
    }
    for episode in traces
]
print("RESULT", json.dumps({"valid": [row["valid"] for row in results], "played": played}))
