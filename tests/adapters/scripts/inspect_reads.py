"""The episodes of a run as Inspect's log, read again by Inspect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from inspect_ai.log import read_eval_log

run = Path(sys.argv[1])
command = [sys.executable, "-m", "oneiro", "episodes", str(run), "--out", "log.eval"]
several = subprocess.run(command, capture_output=True, text=True)
subprocess.run([*command, "--stage", "evaluate-spa"], check=True, capture_output=True)
log = read_eval_log("log.eval")
rows = [
    {
        "task": sample.id,
        "epoch": sample.epoch,
        "success": sample.scores["success"].value,
        "return": sample.scores["return"].value,
        "replies": [message.content for message in sample.messages if message.role == "assistant"],
    }
    for sample in log.samples
]
means = {score.name: score.metrics["mean"].value for score in log.results.scores}
result = {"status": log.status, "task": log.eval.task, "rows": rows, "means": means}
print("RESULT", json.dumps({**result, "several": [several.returncode, several.stderr]}))
