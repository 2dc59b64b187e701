"""Train the model behind each row of the README, and lay it out for `oneiro push`.

python -m tools.checkpoints                       # every row that has a model; needs a GPU for SmolLM2's
python -m tools.checkpoints demo plan-lake        # rows by the names of their files in results/
python -m tools.checkpoints demo --out ~/models   # default: build/checkpoints

A row's run lies in OUT/runs/NAME, its repository in OUT/NAME: upload it with `hf upload`, or push the run itself. A run
that was interrupted goes on; a repository that is there stays.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from oneiro.adapters import hub
from tools.results import ROOT, Experiment, read


def main(given: list[str] | None = None, results: Path = ROOT / "results") -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("names", nargs="*", metavar="NAME", help="files of results/; without: every row's")
    arguments.add_argument("--out", type=Path, default=Path("build/checkpoints"))
    chosen = arguments.parse_args(given)
    rows = {
        name: (one, one.claim.checkpoint) for name, one in read(results).items() if one.claim and one.claim.checkpoint
    }
    for name in chosen.names:
        if name not in rows:
            print(f"no row of the README has a model called '{name}'; known: {', '.join(rows)}", file=sys.stderr)
            return 2
    for name in chosen.names or rows:
        (experiment, checkpoint), run, repository = rows[name], chosen.out / "runs" / name, chosen.out / name
        if not repository.exists():
            train(experiment, run)
            hub.prepare(run / checkpoint, f"oneiro/{name}", repository)
        print(repository, flush=True)
    return 0


def train(experiment: Experiment, run: Path) -> None:
    """The experiment's own command, with its first seed."""
    words = shlex.split(experiment.command or "")
    if "--seeds" in words:
        many = words.index("--seeds")
        del words[many : many + 2]
    seed = (experiment.seeds or [0])[0]
    words = [word.replace("seed=S", f"seed={seed}") for word in words]
    subprocess.run([sys.executable, "-m", *words, "--out", str(run)], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
