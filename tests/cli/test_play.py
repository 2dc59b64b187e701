"""`oneiro play` in a terminal: long lines are broken between words."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import termios

from oneiro import worlds
from oneiro.cli.worlds import fold_line


def test_no_word_is_broken_at_the_edge_of_the_terminal() -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 50))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    command = [sys.executable, "-m", "oneiro", "play", "textgame", "brew-tea"]
    shown = b""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=environment) as game:
        os.close(theirs)
        assert game.stdin is not None
        game.stdin.write(b"q\n")
        game.stdin.close()
        with contextlib.suppress(OSError):  # how a terminal that nobody holds any more ends
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    lines = shown.decode().replace("\r\n", "\n").split("\n")
    whole = worlds.make("textgame:brew-tea")
    whole.reset(seed=0)
    words = whole.instruction.split()
    assert max(map(len, lines)) <= 50 < max(map(len, whole.instruction.split("\n")))
    assert " ".join(lines).split()[: len(words)] == words


def test_a_folded_line_keeps_its_indent_and_its_longest_word() -> None:
    assert fold_line("  one two three", 9) == "  one two\n  three"
    assert fold_line("a " + "x" * 20 + " b", 9) == "a\n" + "x" * 20 + "\nb"
    assert fold_line("P__O\t  x", 80) == "P__O\t  x" and fold_line("no terminal at all", 0) == "no terminal at all"
