"""Real libraries in environments of their own: each lies over this one, and its packages come first."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
Script = Callable[..., str]


@pytest.fixture
def with_library(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Script]:
    """`with_library("trl==1.16.*")(script, *arguments)`: what a script of `scripts/` prints where it is installed.

    The environment is made once, in pytest's cache. Where nothing can be installed, the test is skipped. `bare`: what
    is installed without what it asks for, where that would bring another torch.
    """

    def install(*requirements: str, bare: Sequence[str] = ()) -> Script:
        name = "".join(c if c.isalnum() else "-" for c in (*bare, *requirements)[0])
        home = Path(request.config.cache.mkdir("doors"))
        venv, done = home / name, home / name / "installed"
        with FileLock(home / f"{name}.lock"):
            if not done.exists():
                subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
                python = venv / "bin" / "python"
                command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
                own = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
                # Behind its own packages, those of this environment: torch need not be there twice.
                (own / "zz_below.pth").write_text(sysconfig.get_path("purelib"))
                for packages in filter(None, (requirements, bare and ("--no-deps", *bare))):
                    installed = subprocess.run([python, "-m", "pip", "install", "-q", *packages], capture_output=True)
                    if installed.returncode:
                        pytest.skip(f"{packages[-1]} cannot be installed: {installed.stderr.decode()[-300:]}")
                done.touch()

        def run(script: str, *arguments: object) -> str:
            path = os.pathsep.join([str(ROOT), str(ROOT / "web"), *filter(None, [os.environ.get("PYTHONPATH")])])
            ran = subprocess.run(
                [venv / "bin" / "python", SCRIPTS / script, *map(str, arguments)],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": path, "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"},
            )
            assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-6000:]}"
            return ran.stdout

        return run

    return install
