"""Files of saved tensors, and what tensors are by their names.

``collections/000000000/<worker>_collections.json``, ``index/<step ÷ 1000>/<step>_<worker>.json``, and
``events/<step>/<step>_<worker>.tfevents`` lie side by side.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from jobreport.readers import text_files
from jobreport.readers.tally import UnusableError
from jobrules.model.learning import EVALUATION, PREDICTION, TRAINING, Collection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.readers.base import SourceFile

_NAME = re.compile(
    r"(?P<job>(?:.*/)?)(?:collections/[0-9]{9}/[^/]+_collections\.json(?:\.gz)?"
    r"|index/[0-9]{9}/(?P<index>[0-9]{12})_(?P<of>[^/]+)\.json(?:\.gz)?"
    r"|events/[0-9]{12}/(?P<step>[0-9]{12})_(?P<by>[^/]+)\.tfevents(?:\.gz)?)",
    re.DOTALL,
)
_BLANK = re.compile(r"\s*")
#: Bytes of a file of names, and names of a job.
_MAX_BYTES, _MAX_NAMES = 16 << 20, 100_000
_REDUCTION = re.compile(r"smdebug/reductions/(?P<name>[a-z0-9_]+)/(?P<tensor>.+)", re.DOTALL)
_GRADIENT = "gradient/"
_OF_MODULE = re.compile(r"(?P<module>.+)_(?P<side>input|output)_[0-9]+", re.DOTALL)
_LOSS = re.compile(r"\w*Loss_output_[0-9]+")
#: Modules are known by the names of attributes alone.
_ACTIVATION = re.compile(r"(?:.*[^a-z])?(?P<kind>relu|tanh|sigmoid)[0-9_]*", re.IGNORECASE | re.DOTALL)
_LEAKY = re.compile(r".*leaky.*", re.IGNORECASE | re.DOTALL)
_ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid"}
#: The last parts of names of weights.
_WEIGHTS = (".weight", ".bias")
#: Collections that give counts of classes, and all of which the names are looked up.
CLASSES = ("labels", "predictions")
_COLLECTIONS = ("weights", "biases", "losses", *CLASSES)
#: Modes, also by the numbers of the library. Without one, nothing says that a step is not of training.
MODES = {"TRAIN": TRAINING, "EVAL": EVALUATION, "PREDICT": PREDICTION, "GLOBAL": TRAINING}
MODES |= dict(zip("1234", MODES.values(), strict=True))


class Place(Struct, frozen=True, kw_only=True):
    """What the path of a file says."""

    #: The folder above the three.
    job: str
    #: None for the collections.
    step: int | None = None
    worker: str = ""
    is_index: bool = False


class Kind(Struct, frozen=True, kw_only=True):
    """What a tensor is."""

    #: ``loss``, ``labels``, ``predictions``, ``other`` of unknown names; empty for tensors of a collection.
    of: str = ""
    collection: Collection | None = None
    #: The tensor that it is or is made of, as it was saved, and without what only says of which collection it is.
    tensor: str = ""
    name: str = ""
    #: As the library calls it; empty for the tensor itself.
    reduction: str = ""
    module: str = ""


class Known(Struct, kw_only=True):
    """What the collections and the index say of a job."""

    collections: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    names: set[str] = field(default_factory=set)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Of a step and a worker.
    modes: dict[tuple[int, str], str] = field(default_factory=dict)

    def kind(self, tag: str) -> Kind | None:
        """What a tensor is by its name; None if it is not read."""
        match = _REDUCTION.fullmatch(tag)
        tensor, reduction = (match["tensor"], match["name"]) if match else (tag, "")
        is_loss = tensor in self.collections["losses"] or _LOSS.fullmatch(tensor)
        of = next((one for one in CLASSES if tensor in self.collections[one] or tensor == one), "")
        if of or is_loss:
            return None if reduction else Kind(of=of or "loss", tensor=tensor, name=tensor)
        known = {"tensor": tensor, "reduction": reduction}
        if tensor.startswith(_GRADIENT):
            return Kind(collection=Collection.GRADIENT, name=tensor.removeprefix(_GRADIENT), **known)
        if of_module := _OF_MODULE.fullmatch(tensor):
            name = of_module["module"]
            match = _ACTIVATION.fullmatch(name.rpartition(".")[2])
            if match is None or of_module["side"] == "input" or _LEAKY.fullmatch(name):
                return None
            return Kind(
                collection=Collection.OUTPUT, name=name, module=_ACTIVATIONS[match["kind"].lower()], **known
            )
        is_weight = any(tensor in self.collections[one] for one in ("weights", "biases"))
        if is_weight or f"{_GRADIENT}{tensor}" in self.names or tensor.endswith(_WEIGHTS):
            return Kind(collection=Collection.PARAMETER, name=tensor, **known)
        return None if reduction else Kind(of="other", tensor=tensor, name=tensor)

    def add_collections(self, file: SourceFile) -> None:
        """Add the names of each collection, wherever they stand in the file. Raises ``UnusableError``."""
        try:
            self._walk(msgspec.json.decode(text_files.content(file.path, _MAX_BYTES)), "")
        except (ValueError, RecursionError):
            raise UnusableError("file.not_json") from None

    def _walk(self, value: Any, collection: str) -> None:
        if isinstance(value, dict):
            for key, one in value.items():
                self._walk(one, key if key in _COLLECTIONS else collection)
        elif isinstance(value, list):
            self.collections[collection].update(one for one in value if isinstance(one, str))

    def add_index(self, file: SourceFile, step: int, worker: str) -> None:
        """Add mode, names, and shapes. Raises ``UnusableError`` at what is no index."""
        for one in _objects(text_files.content(file.path, _MAX_BYTES)):
            try:
                index = msgspec.convert(one, _Index, strict=False)
            except (msgspec.ValidationError, RecursionError):
                raise UnusableError("saved_tensors.index") from None
            if mode := MODES.get(index.meta.mode.rpartition(".")[2]):
                self.modes[step, worker] = mode
            if len(self.names) + len(self.shapes) < _MAX_NAMES:
                self.names.update(tensor.tensorname for tensor in index.tensor_payload)
                for tensor in index.shape_payload:
                    for name in (tensor.tensorname, tensor.originalname):
                        self.shapes[name] = tuple(tensor.shape)


class _Meta(Struct):
    mode: str = ""


class _Tensor(Struct):
    tensorname: str


class _Shape(Struct):
    tensorname: str
    originalname: str = ""
    shape: Annotated[list[Annotated[int, Meta(ge=0, le=10**12)]], Meta(max_length=16)] = []


class _Index(Struct):
    meta: _Meta = field(default_factory=_Meta)
    tensor_payload: list[_Tensor] = field(default_factory=list)
    shape_payload: list[_Shape] = field(default_factory=list)


def place_of(file: SourceFile) -> Place | None:
    """What the path says; None for files of something else."""
    match = _NAME.fullmatch(file.name)
    if match is None:
        return None
    step = match["step"] or match["index"]
    return Place(
        job=match["job"],
        step=int(step) if step else None,
        worker=match["by"] or match["of"] or "",
        is_index=match["index"] is not None,
    )


def _objects(content: bytes) -> Iterator[Any]:
    """The JSON objects that follow one another. Raises ``UnusableError`` after the last good one."""
    decoder, at = json.JSONDecoder(), 0
    text = content.decode("utf-8", "replace").strip()
    try:
        while at < len(text):
            one, at = decoder.raw_decode(text, at)
            yield one
            blank = _BLANK.match(text, at)
            at = blank.end() if blank else at
    except (ValueError, RecursionError):
        raise UnusableError("file.not_json") from None
