"""Content is drawn as numpy would draw it, made once, and read again whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneiro_web.seeds import generator
from oneiro_web.sites import SITES, content_cache
from oneiro_web.sites.store.people import Draw
from oneiro_web.sites.web import original


def test_draws_of_the_store_are_numpys() -> None:
    for seed in range(20):
        draw, numpy, which = Draw("test", seed), generator("test", seed), generator("which", seed)
        for _ in range(200):
            end = int(which.integers(1, 50))
            match int(which.integers(4)):
                case 0:
                    assert draw.uniform() == numpy.random()
                case 1:
                    assert draw.below(end) == numpy.integers(end)
                case 2:  # most of these have products to draw again, some need more than 32 bits
                    wide = (3 << 30, 2**31 + 12_345, 9 * 10**9)[end % 3]
                    assert draw.number(5, wide + 4) == 5 + numpy.integers(wide)
                case _:
                    assert draw.some(range(end), 7) == numpy.permutation(end)[:7].tolist()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contents are kept in this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("site", ["shopping", "reddit", "gitlab", "map"])
def test_a_content_that_was_kept_is_the_one_that_was_made(
    site: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = original.__wrapped__
    made = make(site, 7)
    # The store's `fill` must not run again.
    monkeypatch.setattr(content_cache, "save", lambda *_: pytest.fail("it was made a second time"))
    read = make(site, 7)
    assert list(read.iterdump()) == list(made.iterdump())
    read.execute("INSERT INTO session VALUES ('token', 'site', 'user', '')")  # it can be written to, and grows
    assert make(site, 7).execute("SELECT count(*) FROM session").fetchone()[0] == 0


def test_a_damaged_or_missing_file_is_no_content(folder: Path) -> None:
    assert content_cache.load("map", 1) is None
    content_cache.save("map", 1, b"some bytes")
    assert content_cache.load("map", 1) == b"some bytes"
    file = content_cache.file_of("map", 1)
    file.write_bytes(file.read_bytes()[:-1] + b"X")
    assert content_cache.load("map", 1) is None
    file.write_bytes(b"")
    assert content_cache.load("map", 1) is None


def test_what_older_code_made_is_removed(folder: Path) -> None:
    content_cache.save("map", 1, b"new")
    older = content_cache.file_of("map", 1).parent.rename(content_cache.file_of("map", 1).parent.with_name("older"))
    content_cache.save("map", 2, b"new")
    assert not older.exists() and content_cache.load("map", 2) == b"new"
    assert [file.name for file in content_cache.file_of("map", 2).parent.iterdir()] == ["map-2.sqlite"]


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    (folder / "oneiro-web").write_text("a file in the way")
    content_cache.save("map", 1, b"some bytes")
    assert content_cache.load("map", 1) is None
    assert original.__wrapped__("map", 3).execute("SELECT count(*) FROM place").fetchone()[0] == 150


def test_sites_that_share_a_store_share_its_content() -> None:
    assert original("shopping", 0) is original("shopping_admin", 0)
    assert {site.store.name for site in SITES.values()} == {"store", "forum", "gitlab", "map"}
