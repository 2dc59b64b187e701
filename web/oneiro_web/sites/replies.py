"""Pages that were made before: the same request to the same database has the same answer.

What a site answers depends on its database and on the request alone: nothing in it reads a clock or draws a number. A
database is known by its past: the content it began with, and every request since then that wrote to it. Episodes that
begin alike and act alike share their pages. A request that writes is carried out every time.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Reply = TypeVar("Reply")


class Replies(Generic[Reply]):
    """The replies that were asked for last, at most so many. Threads may share it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: OrderedDict[Hashable, Reply] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: Hashable) -> Reply | None:
        """The reply to a request, if it is still known."""
        with self.lock:
            reply = self.kept.get(key)
            if reply is not None:
                self.kept.move_to_end(key)
            return reply

    def keep(self, key: Hashable, reply: Reply) -> None:
        """Remember a reply; the one that nobody asked for longest is forgotten."""
        with self.lock:
            self.kept[key] = reply
            if len(self.kept) > self.most:
                self.kept.popitem(last=False)


class Past:
    """How a database came to be what it is."""

    def __init__(self, db: sqlite3.Connection, *began: object) -> None:
        self.db = db
        self.changes = db.total_changes
        self.digest: bytes | None = digest(b"", began)
        """Equal for databases with the same past; None once somebody wrote to this one past its pages."""

    def look(self) -> bytes | None:
        """The digest as of now. What was written since `wrote` was asked last has no explanation."""
        if self.db.total_changes != self.changes:
            self.digest, self.changes = None, self.db.total_changes
        return self.digest

    def wrote(self, *what: object) -> bool:
        """Whether `what`, which happened since the last `look`, wrote something; it then becomes part of the past."""
        if self.db.total_changes == self.changes:
            return False
        self.changes = self.db.total_changes
        if self.digest is not None:
            self.digest = digest(self.digest, what)
        return True


def digest(before: bytes, what: tuple[object, ...]) -> bytes:
    """A past with one more event."""
    return hashlib.blake2b(before + repr(what).encode(), digest_size=16).digest()
