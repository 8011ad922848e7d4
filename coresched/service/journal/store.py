"""The journal's file: an SQLite database of facts, refused unless it is whole, ours and free."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple, NoReturn, cast
from urllib.parse import quote
from zlib import crc32

import msgspec

from coresched.errors import InputError
from coresched.service.batches.facts import AnyFact

APPLICATION_ID = 0x436F5343
"""Tells the file from other SQLite databases: "CoSC" in its header."""
VERSION = 1

_SCHEMA = (
    "CREATE TABLE facts("
    "sequence INTEGER PRIMARY KEY, batch INTEGER, fact BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE INDEX facts_of_batch ON facts(batch) WHERE batch IS NOT NULL",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
# Statements for at most so many rows. Places that are not needed have no sequence number, and drop out.
_INSERT_SIZES = (1, 4, 16, 64, 240)  # within the 999 parameters of older SQLite
_INSERTS = {
    size: "INSERT INTO facts SELECT * FROM (VALUES "
    + ", ".join(["(?, ?, ?, ?)"] * size)
    + ") WHERE column1 IS NOT NULL"
    for size in _INSERT_SIZES
}
_ANOTHER = "give another --journal FILE"
_IN_USE = ("is in use by another coresched serve", f"stop that one or {_ANOTHER}")
_NO_DATABASE = ("is not a coresched journal, nor any SQLite database", _ANOTHER)
_RESTORE = "restore a copy of it or give another --journal FILE"
# Files that this process holds. SQLite's locks are the process's, and closing any file that it opened ends
# them, also the file that a second Store would only have looked into.
_held_here: set[tuple[int, int]] = set()
_decoder: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)


class Row(NamedTuple):
    """One fact as it is stored: as JSON, with the key of its batch if it is of one."""

    sequence: int
    batch: int | None
    fact: bytes

    def checksum(self) -> int:
        """Over the whole row: SQLite notices damage to its own structure only."""
        return crc32(self.fact, crc32(b"%d %d" % (self.sequence, -1 if self.batch is None else self.batch)))


class Forgotten(NamedTuple):
    """Keys of batches whose facts are to be deleted."""

    batches: Collection[int]


class Store:
    """One journal file, held for this process alone until it is closed or the process ends in any way.

    First its facts are read, then `begin` makes it ready for `write`. Until then nothing in it changes,
    however it is left. For one thread at a time.
    """

    def __init__(self, path: str) -> None:
        """Open the file, or create it with mode 0600; an empty file is as good as none.

        Raises InputError, having changed nothing, if the file is in use, damaged, not a journal of this
        version, or cannot be read and written.
        """
        if not path or "\0" in path:
            raise InputError(f"--journal must be the name of a file or 'none', got {path!r}")
        self._path = path
        self._file = os.path.realpath(path)  # SQLite keeps its files beside this one, not beside a link to it
        try:
            self._check_surroundings()
            self._identity = _identity(self._file)
            if self._identity in _held_here:
                self._fail(*_IN_USE)
            self._check_header()
            self._connection = self._connect("mode=rw")
        except OSError as error:
            self._fail(f"cannot be used ({error.strerror})", _ANOTHER)
        except sqlite3.Error as error:
            self._refuse_error(error)
        _held_here.add(self._identity)
        try:
            self._hold()
        except sqlite3.Error as error:
            self._refuse_error(error)

    def facts(self) -> Iterator[tuple[int, AnyFact]]:
        """All facts with their sequence numbers, in order, before `begin`.

        Raises InputError at the first that is damaged, and leaves the file.
        """
        sequence = 0
        try:
            for values in self._connection.execute(
                "SELECT sequence, batch, fact, checksum FROM facts ORDER BY sequence"
            ):
                sequence = values[0]
                if [type(value) for value in values[2:]] != [bytes, int]:
                    self.refuse(f"is damaged: fact {sequence} has values of other types", _RESTORE)
                if Row(*values[:3]).checksum() != values[3]:
                    self.refuse(f"is damaged: fact {sequence} differs from its checksum", _RESTORE)
                yield sequence, _decoder.decode(values[2])
        except msgspec.MsgspecError as error:
            self.refuse(f"has a fact {sequence} that cannot be decoded ({error})", _RESTORE)
        except sqlite3.Error as error:
            self._refuse_error(error)

    def last(self) -> int:
        """The highest sequence number in the file, 0 if it has no facts."""
        (highest,) = self._connection.execute("SELECT max(sequence) FROM facts").fetchone()
        return highest or 0

    def begin(self) -> None:
        """Make ready to write. Raises InputError, and leaves the file, if that cannot be."""
        try:
            # The lock of the transaction gives way to one that outlasts transactions. If another process
            # comes in between, this one is refused, whether the other is still there or not.
            (before,) = self._connection.execute("PRAGMA data_version").fetchone()
            self._connection.execute("ROLLBACK")
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("BEGIN EXCLUSIVE")
            (after,) = self._connection.execute("PRAGMA data_version").fetchone()
            if after != before:
                self.refuse(*_IN_USE)
            self._connection.execute("COMMIT")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            self._refuse_error(error)

    def write(self, work: Sequence[Row | Forgotten]) -> None:
        """Insert and delete in the order given, all of it or nothing. When this returns it is on the disk.

        Raises sqlite3.Error if it cannot be written, and OSError if the file is no longer at its path.
        """
        if _identity(self._file) != self._identity:
            raise OSError("it was replaced by another file")
        with self._connection:
            self._connection.execute("BEGIN")
            for kind, items in groupby(work, type):
                if kind is Row:
                    self._insert(list(cast("Iterator[Row]", items)))
                else:
                    for item in cast("Iterator[Forgotten]", items):
                        for key in item.batches:
                            self._connection.execute("DELETE FROM facts WHERE batch = ?", (key,))

    def close(self) -> None:
        """Close the file; what SQLite kept beside it goes into it."""
        self._connection.close()
        _held_here.discard(self._identity)

    def leave(self) -> None:
        """Close the file before `begin`, as it was found."""
        _held_here.discard(self._identity)
        beside = self._file + "-wal"
        if not os.path.exists(beside) or os.path.getsize(beside) == 0:
            self._connection.close()
            return
        # The last connection that closes moves the -wal into the file, unless it may only read.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        reader = self._connect("mode=ro")
        with suppress(sqlite3.Error):  # if another process keeps it from reading, that one is not the last
            reader.execute("BEGIN")
            reader.execute("PRAGMA application_id").fetchone()
        self._connection.close()
        reader.close()

    def refuse(self, what: str, fix: str) -> NoReturn:
        """Leave the file and raise InputError: the file, what is wrong with it, and the fix."""
        self.leave()
        self._fail(what, fix)

    def _insert(self, rows: list[Row]) -> None:
        """Many rows a statement: after each one, this thread waits for its turn beside the event loop."""
        for start in range(0, len(rows), _INSERT_SIZES[-1]):
            part = rows[start : start + _INSERT_SIZES[-1]]
            size = next(size for size in _INSERT_SIZES if size >= len(part))
            values = [value for row in part for value in (*row, row.checksum())]
            values += [None] * (4 * (size - len(part)))
            self._connection.execute(_INSERTS[size], values)

    def _fail(self, what: str, fix: str) -> NoReturn:
        raise InputError(f"--journal {self._path!r} {what}; {fix}") from None

    def _refuse_error(self, error: sqlite3.Error) -> NoReturn:
        text = str(error)
        if "locked" in text:
            what, fix = _IN_USE
        elif "not a database" in text:
            what, fix = _NO_DATABASE
        elif "malformed" in text or "no such" in text:
            what, fix = f"is damaged ({text})", _RESTORE
        else:
            what, fix = f"cannot be used ({text})", f"make it usable or {_ANOTHER}"
        if hasattr(self, "_connection"):
            self.refuse(what, fix)
        self._fail(what, fix)

    def _check_surroundings(self) -> None:
        folder, name = os.path.split(self._file)
        if not os.path.isdir(folder):
            self._fail(f"is in {folder!r}, which is no directory", "create it first")
        if os.path.isdir(self._file):
            self._fail("is a directory", "give the name of a file")
        if not os.access(folder, os.W_OK | os.X_OK):
            self._fail(f"is in {folder!r}, where this user may not write", "choose another directory")
        found = os.path.exists(self._file)
        if found:
            if not stat.S_ISREG(os.stat(self._file).st_mode):
                self._fail("is not a regular file", _ANOTHER)
            if not os.access(self._file, os.R_OK | os.W_OK):
                self._fail(
                    "may not be read and written by this user", f"change its permissions or {_ANOTHER}"
                )
        beside = self._file + "-wal"
        if not found or os.path.getsize(self._file) == 0:
            # SQLite would delete it, and it may be all that is left of a journal.
            if os.path.exists(beside) and os.path.getsize(beside):
                self._fail(f"is missing or empty, but there is {name + '-wal'!r}, a part of it", _RESTORE)
            if not found:
                os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600))

    def _check_header(self) -> None:
        """Look without SQLite, which may change a database of something else by opening it.

        Nor can it look at a file alone that a process left in the middle of moving the -wal into it.
        """
        with open(self._file, "rb") as file:
            header = file.read(100)
        if not header:
            return
        if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
            self._fail(*_NO_DATABASE)
        self._check_version(int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))

    def _check_version(self, application: int, version: int) -> None:
        if application != APPLICATION_ID:
            self._fail("is an SQLite database of another application", _ANOTHER)
        if version > VERSION:
            self._fail(
                f"was written by a newer coresched (journal version {version}, this one knows {VERSION})",
                "use that version or another file",
            )
        if version != VERSION:
            self._fail(f"has the unknown journal version {version}, this coresched knows {VERSION}", _ANOTHER)

    def _hold(self) -> None:
        """Take the lock, fill an empty file, check any other one."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        if os.path.getsize(self._file) == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
        try:
            # Again, as there may be a newer header in the -wal.
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            self._check_version(application, version)
        except InputError:
            self.leave()
            raise
        # Not the quick check: through a damaged index, facts of a batch would outlive it.
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            self.refuse(f"is damaged ({found.splitlines()[-1]})", _RESTORE)
        connection.execute("SELECT sequence, batch, fact, checksum FROM facts LIMIT 0")

    def _connect(self, options: str) -> sqlite3.Connection:
        name = quote(os.fsencode(self._file))
        # Read and written in different threads, but one after the other.
        return sqlite3.connect(
            f"file:{name}?{options}", uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
