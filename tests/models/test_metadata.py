"""What a model's folder says about it."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest

from oneiro.models.metadata import ModelMetadata
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny


class Kept(ModelMetadata):
    what: ClassVar[str] = "a thing"
    kind: Literal["thing"] = "thing"
    size: int = 3


def test_metadata_is_read_as_its_own_kind_only() -> None:
    tiny = make_tiny()
    assert Kept.read(tiny, "here") is None
    assert Kept(size=4).write(tiny) is tiny and tiny.metadata == {"kind": "thing", "size": 4}
    assert Kept.read(tiny, "here") == Kept(size=4)
    for metadata, kind in (({"kind": "agent"}, "agent"), ({"size": "x"}, "unknown")):
        tiny.metadata = metadata
        with pytest.raises(OneiroError, match=f"the model at here is not a thing: its oneiro.json is of kind '{kind}'"):
            Kept.read(tiny, "here")
