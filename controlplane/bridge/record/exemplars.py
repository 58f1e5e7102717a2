"""Requests that stand for others that took about as long: the first of a minute in its octave."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controlplane.bridge.record.measured import PLACE, Ints, Measurements
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.measures import STAGE_NAMES, WHOLE

OWNERS_MAX = 2_000
EXEMPLARS_MAX = 20_000
EXEMPLAR_MEASURES = (*WHOLE[:2], *STAGE_NAMES)
OCTAVES = 64
EACH = OCTAVES * len(EXEMPLAR_MEASURES)
_PLACES = [PLACE[name] for name in EXEMPLAR_MEASURES]
_BASES: Ints = OCTAVES * np.arange(len(EXEMPLAR_MEASURES))
_POWERS: Ints = np.left_shift(1, np.arange(OCTAVES - 1))
# Nearly all values are small, and a table is faster than a search.
_OCTAVES = np.searchsorted(_POWERS, np.arange(65_536), side="right").astype(np.int8)

Owner = tuple[str, str, str]


class NewExemplar(NamedTuple):
    """A request that took `value_us`, which has `octave` bits."""

    owner: Owner
    measure: str
    octave: int
    value_us: int
    request: bytes


class Shown:
    """Whether there is one yet, by owner, measure and octave; for one minute."""

    def __init__(self) -> None:
        self._shown: NDArray[np.bool_] = np.zeros(OWNERS_MAX * EACH, np.bool_)

    def choose(
        self, records: Sequence[FinishedRequest], owners: Ints, measured: Measurements, had: int
    ) -> list[NewExemplar]:
        """New ones, as far as there is room beside those of the minute that wait.

        `owners` has the owner's number for each request, -1 for one that has none.
        """
        values = measured.values[:, _PLACES]
        octaves = _OCTAVES.take(values, mode="clip").astype(np.int64)
        long = values >= len(_OCTAVES)
        octaves[long] = np.searchsorted(_POWERS, values[long], side="right")
        numbers = owners[:, None]
        spots = numbers * EACH + _BASES + octaves
        new = np.flatnonzero((numbers >= 0) & (values > 0) & ~self._shown[spots])
        spots = spots.reshape(-1)
        firsts = np.sort(new[np.unique(spots[new], return_index=True)[1]])
        firsts = firsts[: max(0, EXEMPLARS_MAX - had)]
        self._shown[spots[firsts]] = True
        chosen: list[NewExemplar] = []
        for first, octave, us in zip(
            firsts.tolist(),
            octaves.reshape(-1)[firsts].tolist(),
            values.reshape(-1)[firsts].tolist(),
            strict=True,
        ):
            row, place = divmod(first, len(EXEMPLAR_MEASURES))
            record = records[row]
            owner = (record.organization, record.project, record.model)
            chosen.append(NewExemplar(owner, EXEMPLAR_MEASURES[place], octave, us, record.request))
        return chosen
