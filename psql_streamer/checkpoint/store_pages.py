"""Whether an LMDB file is whole, before LMDB maps it: a page that is missing there ends the process by SIGBUS.

The layout is that of LMDB 0.9 (mdb.c: MDB_page, MDB_meta, MDB_db, MDB_node), in the machine's own byte order.
"""

from __future__ import annotations

import os
import struct
from operator import itemgetter
from pathlib import Path

_PAGE = struct.Struct("=QHHHH")
"""Number, padding, flags, and where its free space begins and ends."""
_META_PAGE = struct.Struct("=40xI36xQ40xQ8xQ")
"""The size of a page, the roots of the tree of free pages and of the main one, and the number of the transaction."""
_NODE = struct.Struct("=HHHH")
_TREE = struct.Struct("=40xQ")
_COUNT_AT = 12
"""Where the first of the pages of one long value says how many these are."""

_MAGIC = 0xBEEFC0DE
_BRANCH_PAGE, _LEAF_PAGE, _OVERFLOW_PAGE = 1, 2, 4
_IS_LONG, _IS_TREE = 1, 2
_NO_ROOT = 2**64 - 1
_PAGE_SIZES = [1 << bits for bits in range(8, 17)]


class DamagedFile(Exception):
    """The text says in which way."""


def check_file(path: Path, *, all_pages: bool) -> None:
    """DamagedFile when the file lacks a page that belongs to it, or has another one there.

    all_pages: not only the first two, which are enough for a file that somebody writes to meanwhile. A file that is
    of another kind, or that cannot be read, is left to LMDB, which says so.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    try:
        _Pages(descriptor).check(all_pages=all_pages)
    except OSError:
        return
    finally:
        os.close(descriptor)


class _Pages:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bytes = os.fstat(descriptor).st_size
        self._size = 0
        self._seen: set[int] = set()

    def check(self, *, all_pages: bool) -> None:
        if not self._bytes:
            raise DamagedFile("it is empty")
        first = os.pread(self._descriptor, _META_PAGE.size, 0)
        if not _begins_like_lmdb(first):
            return
        if len(first) < _META_PAGE.size:
            raise self._make_short_error()
        self._size = _META_PAGE.unpack(first)[0]
        if self._size not in _PAGE_SIZES:
            raise DamagedFile("its first page is not readable")
        if self._bytes < 2 * self._size:
            raise self._make_short_error()
        second = os.pread(self._descriptor, _META_PAGE.size, self._size)
        if not _begins_like_lmdb(second):
            raise DamagedFile("its second page is not readable")
        if all_pages:
            newest = max((_META_PAGE.unpack(first), _META_PAGE.unpack(second)), key=itemgetter(3))
            for root in newest[1:3]:
                self._check_tree(root)

    def _check_tree(self, root: int) -> None:
        waiting = [] if root == _NO_ROOT else [root]
        while waiting:
            number = waiting.pop()
            page, flags = self._read(number, _BRANCH_PAGE | _LEAF_PAGE)
            try:
                waiting += self._check_nodes(page, flags)
            except struct.error:
                raise DamagedFile(f"page {number} is not readable") from None

    def _check_nodes(self, page: bytes, flags: int) -> list[int]:
        """The pages below a page of a tree; what its values lie in is looked at here."""
        below = []
        for (at,) in struct.iter_unpack("=H", page[_PAGE.size : _PAGE.unpack_from(page)[3]]):
            low, high, more, key = _NODE.unpack_from(page, at)
            value = at + _NODE.size + key
            if flags & _BRANCH_PAGE:
                below.append(low | high << 16 | more << 32)
            elif more & _IS_LONG:
                self._check_long_value(*struct.unpack_from("=Q", page, value))
            elif more & _IS_TREE and (root := _TREE.unpack_from(page, value)[0]) != _NO_ROOT:
                below.append(root)
        return below

    def _check_long_value(self, number: int) -> None:
        page, _ = self._read(number, _OVERFLOW_PAGE)
        (count,) = struct.unpack_from("=I", page, _COUNT_AT)
        if (number + count) * self._size > self._bytes:
            raise self._make_short_error()

    def _read(self, number: int, kinds: int) -> tuple[bytes, int]:
        """A page that one of the file's trees has, and its flags."""
        if (number + 1) * self._size > self._bytes:
            raise self._make_short_error()
        page = os.pread(self._descriptor, self._size, number * self._size)
        own_number, _, flags, *_ = _PAGE.unpack_from(page)
        if own_number != number or not flags & kinds or number in self._seen:
            raise DamagedFile(f"page {number} is not readable")
        self._seen.add(number)
        return page, flags

    def _make_short_error(self) -> DamagedFile:
        return DamagedFile(f"it ends after {self._bytes} bytes, in front of what belongs to it")


def _begins_like_lmdb(page: bytes) -> bool:
    return page[_PAGE.size : _PAGE.size + 4] == struct.pack("=I", _MAGIC)
