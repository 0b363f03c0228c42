"""GPUs by the names that the rows of a log have for them: host, index, bus id, and UUID."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers.bounds import MAX_GPUS
from jobreport.readers.names import as_name
from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.cells import is_no_value
from jobreport.readers.nvidia_smi.rows import GPU
from jobreport.readers.nvidia_smi.table import Texts, numbered, shapes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from jobrules.model import IntArray

_NUMBERED = re.compile(r"(?:(?:gpu|cuda|nvidia|device)[ :_-]?)?\+?([0-9]{1,4})(?:\.0+)?", re.IGNORECASE)
#: GPUs of a machine are fewer, and their numbers lower.
MAX_NUMBERS = 64
#: GPUs whose rows are kept, and machines among them: more are damage or malice.
MAX_NAMES, MAX_HOSTS = 4096, 1024
#: In the place of the GPU of a row: one of too many GPUs of a machine, or of too many machines or GPUs of a file.
SURPLUS_GPU, SURPLUS_NODE = -1, -2


class GpuNames:
    """The GPUs of a log, in the order of their first rows."""

    def __init__(self, words: Iterable[str], note: Callable[..., None]) -> None:
        """``words`` are what the columns say."""
        self.words = _NAME_OF.keys() & {*words}
        #: Number of the line of the first row of each.
        self.lines: list[int] = []
        self._note = note
        self._place: dict[tuple[str, ...], int] = {}
        #: What the rows of each host call its GPUs.
        self._of_host: dict[str, set[str]] = {}

    @property
    def names(self) -> list[tuple[str, GPU]]:
        """The host of each, and the GPU."""
        return [(host, GPU(name=name, bus=bus, uuid=uuid)) for host, name, bus, uuid in self._place]

    def places_of(self, said: Mapping[str, Texts], lines: IntArray) -> NDArray[np.int16]:
        """(n,) the place of the GPU of each row; where there are too many, below 0."""
        texts = {word: said[word] for word in sorted(self.words)}
        if not self.lines and says.INDEX in texts and _are_numbers_of_rows(texts[says.INDEX]):
            self.words.discard(says.INDEX)
            del texts[says.INDEX]
            self._note("nvidia_smi.row_numbers")
        first, code = np.zeros(1, np.int64), np.zeros(len(lines), np.int64)
        if texts:
            first, code = numbered([one.code.view(np.uint64) for one in texts.values()])
        nothing = [""] * len(first)
        names_of = {word: _names(word, some.distinct, some.code[first]) for word, some in texts.items()}
        kinds = [*zip(*(names_of.get(word, nothing) for word in _NAME_OF), strict=True)]
        # The first row of each kind: of several places the last one that is written stays.
        begins = np.zeros(len(kinds), np.int64)
        begins[code[::-1]] = np.arange(len(code))[::-1]
        new = {
            names: row for names, row in zip(kinds, begins.tolist(), strict=True) if names not in self._place
        }
        for names in sorted(new, key=lambda names: (new[names], names)):
            self._add(names, int(lines[new[names]]))
        is_full = len(self.lines) == MAX_NAMES
        surplus = [
            SURPLUS_NODE if is_full or host not in self._of_host else SURPLUS_GPU for host, *_ in kinds
        ]
        return np.array([*map(self._place.get, kinds, surplus)], np.int16)[code]

    def _add(self, names: tuple[str, ...], line: int) -> None:
        host, index, bus, uuid = names
        if len(self._of_host) < MAX_HOSTS:
            self._of_host.setdefault(host, set())
        gpu, mine = index or bus or uuid, self._of_host.get(host)
        if mine is None or len(self.lines) == MAX_NAMES or (len(mine) == MAX_GPUS and gpu not in mine):
            return
        mine.add(gpu)
        self._place[names] = len(self.lines)
        self.lines.append(line)


def _are_numbers_of_rows(texts: Texts) -> bool:
    return sum(bool(_NUMBERED.fullmatch(text.strip())) for text in texts.distinct) > MAX_NUMBERS


def _bus(text: str) -> str:
    """The bus id as ``7:00.0``: tools write ``00000000:07:00.0``, ``0000:07:00.0`` or ``07:00.0``."""
    return as_name(text.lower().lstrip("0:"))


def _gpu(text: str) -> str:
    match = _NUMBERED.fullmatch(text)
    return f"gpu{int(match[1])}" if match else as_name(text)


#: What makes a name of the text in a column that names something.
_NAME_OF: dict[str, Callable[[str], str]] = {
    says.HOST: as_name,
    says.INDEX: _gpu,
    says.BUS: _bus,
    says.UUID: as_name,
}


def _names(word: str, texts: Sequence[str], code: IntArray) -> list[str]:
    """The names in some cells of a column; ``code`` are the positions of their texts."""
    # A log may have a name for each row, and no digit makes a value of what is none.
    plain = [text.strip() for text in texts]
    shapes = shapes_of(plain)
    missing = {shape for shape in {*shapes} if is_no_value(shape)}
    make = _NAME_OF[word]
    names = ["" if shape in missing else make(text) for text, shape in zip(plain, shapes, strict=True)]
    return [names[place] for place in code.tolist()]
