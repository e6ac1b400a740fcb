"""Where the numbers of metrics live: in this process, or in memory that the workers of one server share.

A series is a metric with its labels, and has cells. Each worker writes to a file of its own and reads those of all. The
parent makes the files, without a name: a worker's replacement goes on counting where the dead one stopped. A file
begins with two numbers: how many bytes are in use, and whether a worker writes to it. Then come the series: the length
of the key, the number of cells, the key as JSON, padding to eight bytes, the cells. A series is written before the
bytes in use are, so a reader finds whole series only.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeAlias, cast

import msgspec

log = logging.getLogger("tailrace.server")
FILE_BYTES: Final = 1 << 20  # thousands of series; there are as many as routes and providers
Labels: TypeAlias = tuple[str, ...]
_HEADER: Final = struct.Struct("=QQ")
_SERIES: Final = struct.Struct("=II")
_USED: Final = struct.Struct("=Q")
_CELL_BYTES: Final = 8


class Cells(Protocol):
    """The numbers of one series: a list of them, or a part of the shared memory."""

    def __getitem__(self, index: int, /) -> float: ...
    def __setitem__(self, index: int, value: float, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[float]: ...


class MetricValues(Protocol):
    """The cells of every series."""

    def cells(self, metric: str, labels: Labels, count: int) -> Cells:
        """The cells of a series that this process writes; all zero where it is new."""

    def reset(self, metric: str) -> None:
        """Sets all cells of the metric that this process writes to zero."""

    def totals(self, metric: str, *, of_the_dead: bool) -> dict[Labels, list[float]]:
        """The cells of each series of the metric, summed over all workers; of the dead too where they count."""


class ProcessValues:
    """The values of a server that is one process."""

    def __init__(self) -> None:
        self._series: dict[str, dict[Labels, list[float]]] = {}

    def cells(self, metric: str, labels: Labels, count: int) -> Cells:
        return self._series.setdefault(metric, {}).setdefault(labels, [0.0] * count)

    def reset(self, metric: str) -> None:
        for cells in self._series.get(metric, {}).values():
            cells[:] = [0.0] * len(cells)

    def totals(self, metric: str, *, of_the_dead: bool) -> dict[Labels, list[float]]:  # noqa: ARG002 - none is dead
        return dict(self._series.get(metric, {}))


class ValuesFile:
    """The series of one worker. Its eight-byte cells are written whole, so no reader sees half a number."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, FILE_BYTES)
        self._view = memoryview(self._memory).cast("d")
        self._read_to = _HEADER.size
        self._series: dict[str, dict[Labels, Cells]] = {}
        if self._used == 0:
            _USED.pack_into(self._memory, 0, _HEADER.size)

    @property
    def _used(self) -> int:
        return int(_USED.unpack_from(self._memory, 0)[0])

    @property
    def alive(self) -> bool:
        return bool(_USED.unpack_from(self._memory, _USED.size)[0])

    @alive.setter
    def alive(self, alive: bool) -> None:
        _USED.pack_into(self._memory, _USED.size, int(alive))

    def series(self, metric: str) -> dict[Labels, Cells]:
        """Every series of the metric that is in the file now."""
        used = self._used
        while self._read_to < used:
            key_bytes, count = _SERIES.unpack_from(self._memory, self._read_to)
            begin = self._read_to + _SERIES.size
            name, *labels = msgspec.json.decode(self._memory[begin : begin + key_bytes], type=list[str])
            first = _padded(begin + key_bytes) // _CELL_BYTES
            cells = cast("Cells", self._view[first : first + count])
            self._series.setdefault(name, {})[tuple(labels)] = cells
            self._read_to = (first + count) * _CELL_BYTES
        return self._series.get(metric, {})

    def add(self, metric: str, labels: Labels, count: int) -> Cells | None:
        """The cells of a new series; None where the file is full. For the one worker that writes to it."""
        at = self._used
        key = msgspec.json.encode([metric, *labels])
        cells_at = _padded(at + _SERIES.size + len(key))
        end = cells_at + count * _CELL_BYTES
        if end > FILE_BYTES:
            return None
        _SERIES.pack_into(self._memory, at, len(key), count)
        self._memory[at + _SERIES.size : at + _SERIES.size + len(key)] = key
        self._memory[cells_at:end] = bytes(end - cells_at)  # a worker may have died here over the key of another series
        _USED.pack_into(self._memory, 0, end)
        return self.series(metric)[labels]


class WorkerValues:
    """The values of one worker of several. `index` counts from 1."""

    def __init__(self, index: int, files: Sequence[int]) -> None:
        self._files = [ValuesFile(fd) for fd in files]
        self._own = self._files[index - 1]
        self._own.alive = True
        self._full = False

    def cells(self, metric: str, labels: Labels, count: int) -> Cells:
        if (known := self._own.series(metric).get(labels)) is not None:
            return known
        if (new := self._own.add(metric, labels, count)) is not None:
            return new
        if not self._full:
            self._full = True
            log.warning("the memory for metrics is full: further series of this worker are not shown")
        return [0.0] * count

    def reset(self, metric: str) -> None:
        for cells in self._own.series(metric).values():
            for number in range(len(cells)):
                cells[number] = 0.0

    def totals(self, metric: str, *, of_the_dead: bool) -> dict[Labels, list[float]]:
        totals: dict[Labels, list[float]] = {}
        for file in self._files:
            if of_the_dead or file.alive:
                for labels, cells in file.series(metric).items():
                    totals[labels] = [a + b for a, b in zip(totals.get(labels, [0.0] * len(cells)), cells, strict=True)]
        return totals


def _padded(offset: int) -> int:
    return -(-offset // _CELL_BYTES) * _CELL_BYTES


def new_values_files(count: int) -> list[int]:
    """For the parent: the descriptors of so many empty files, which its workers inherit."""
    return [_new_file() for _ in range(count)]


def mark_dead(fd: int) -> None:
    """For the parent, when the worker that wrote to the file has died: what it had in flight is not counted."""
    ValuesFile(fd).alive = False


def _new_file() -> int:
    if sys.platform == "linux":
        fd = os.memfd_create("tailrace-metrics")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, FILE_BYTES)
    return fd
