"""Counts of buckets of many series side by side: a row of three arrays for each sheet.

Codes get a column as they come up, so that adding requests to any number of sheets is a few
operations on arrays.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from controlplane.bridge.record.measured import NAMES, STRIDE, Ints, Measurements
from controlplane.kernel.histogram import PACKED, Histogram

ROWS_AT_FIRST = 32
COLUMNS_AT_ONCE = 512
# Of requests that have no sheet.
NOWHERE = 0
SIZE = PACKED.itemsize

Number = TypeVar("Number", bound=np.generic)


class Sheets:
    """The sheets of one width: their first `width` measures have sums and maxima.

    Row `NOWHERE` is no one's.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._rows = 1
        # One more than the column, since memory of zeros that nothing touches costs nothing.
        self._columns: NDArray[np.int32] = np.zeros(len(NAMES) * STRIDE, np.int32)
        self._codes: Ints = np.empty(0, np.int64)
        self._counts: NDArray[np.int32] = np.zeros((ROWS_AT_FIRST, COLUMNS_AT_ONCE), np.int32)
        self._totals: Ints = np.zeros((ROWS_AT_FIRST, width), np.int64)
        self._maxima: Ints = np.zeros((ROWS_AT_FIRST, width), np.int64)

    def make(self) -> SeriesSheet:
        sheet = SeriesSheet(self, self._rows)
        self._rows += 1
        if self._rows > len(self._counts):
            grown = 2 * len(self._counts)
            self._counts = _grown(self._counts, grown, self._counts.shape[1])
            self._totals = _grown(self._totals, grown, self.width)
            self._maxima = _grown(self._maxima, grown, self.width)
        return sheet

    def add(self, places: Ints, measured: Measurements, last: int) -> None:
        """Add groups of requests to their sheets, and the first `last` codes of them.

        `places` has a line for each group, with as many rows as it belongs to.
        """
        columns = self._columns_of(measured.codes[:last])
        spots = places[measured.rows[:last]] * self._counts.shape[1] + columns[:, None]
        counts = np.repeat(measured.counts[:last].astype(np.int32), places.shape[1])
        np.add.at(self._counts.reshape(-1), spots.reshape(-1), counts)
        spots = (places[:, :, None] * self.width + np.arange(self.width)).reshape(-1)
        for sums, values, gather in (
            (self._totals, measured.sums, np.add),
            (self._maxima, measured.maxima, np.maximum),
        ):
            each = np.repeat(values[:, : self.width], places.shape[1], axis=0)
            gather.at(sums.reshape(-1), spots, each.reshape(-1))

    def histograms(self, row: int) -> dict[str, Histogram]:
        counts = self._counts[row, : len(self._codes)]
        found = np.flatnonzero(counts)
        found = found[np.argsort(self._codes[found])]
        places, indexes = np.divmod(self._codes[found], STRIDE)
        packed = np.empty(len(found), PACKED)
        packed["index"], packed["count"] = indexes - 1, counts[found]
        data = packed.tobytes()
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        sums = np.add.reduceat(packed["count"], starts, dtype=np.int64) if len(found) else starts
        totals, maxima = self._totals[row].tolist(), self._maxima[row].tolist()
        made: dict[str, Histogram] = {}
        for place, start, stop, zeros, count in zip(
            places[starts].tolist(),
            starts.tolist(),
            [*starts[1:].tolist(), len(found)],
            np.where(indexes[starts], 0, packed["count"][starts]).tolist(),
            sums.tolist(),
            strict=True,
        ):
            first = start + bool(zeros)
            histogram = Histogram.of_packed(data[first * SIZE : stop * SIZE], zeros)
            measured = place < self.width
            histogram.total = totals[place] if measured else count
            histogram.maximum = maxima[place] if measured else 1
            made[NAMES[place]] = histogram
        return made

    def _columns_of(self, codes: Ints) -> NDArray[np.int32]:
        columns = self._columns[codes]
        if not columns.all():
            new = codes[columns == 0]
            order = np.arange(1, len(new) + 1)
            self._columns[new] = order
            # The last of each code: cheaper than sorting them.
            new = new[self._columns[new] == order]
            self._codes = np.concatenate((self._codes, new))
            known = len(self._codes)
            self._columns[new] = np.arange(known - len(new), known) + 1
            if known > self._counts.shape[1]:
                grown = -(-known // COLUMNS_AT_ONCE) * COLUMNS_AT_ONCE
                self._counts = _grown(self._counts, len(self._counts), grown)
            columns = self._columns[codes]
        return columns - 1


class SeriesSheet(msgspec.Struct, eq=False):
    """The series of one key in one minute: as many as the width, and events beside them."""

    _sheets: Sheets
    row: int

    @property
    def width(self) -> int:
        return self._sheets.width

    def histograms(self) -> dict[str, Histogram]:
        return self._sheets.histograms(self.row)


def _grown(old: NDArray[Number], rows: int, columns: int) -> NDArray[Number]:
    new = np.zeros((rows, columns), old.dtype)
    new[: old.shape[0], : old.shape[1]] = old
    return new
