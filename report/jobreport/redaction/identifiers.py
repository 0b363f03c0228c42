"""Names in a report that may identify who ran a job, and where.

Names are found by position, such as node names, or by pattern, such as e-mail addresses.
``jobreport.redaction.pseudonyms`` replaces them.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.document import Report

#: The option that replaces names; a redacted report has it in its command.
OPTION = "--redact"

#: Patterns by kind, the first match wins; their bounds keep the search fast in any text.
FORMS = {
    "ARN": r"arn:[a-z-]+:[^\s\"',]+",
    "Storage address": r"\b(?:s3a?|gs|abfss?|wasbs?|hdfs)://[^\s\"',]+|(?<![\w.-])[\w.-]{1,255}\.s3[\w.-]{0,63}\.amazonaws\.com[^\s\"',]*",
    "E-mail address": r"(?<![\w.+-])[\w.+-]{1,255}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[A-Za-z]{2,24}",
    "Path with a user name": r"(?:/home|/Users|/fsx/home|/mnt/home)/[^/\s\"',]+|[A-Za-z]:\\Users\\[^\\\s\"',]+",
    "IP address": r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|(?<!\d)\d{1,3}(?:-\d{1,3}){3}(?!\d)"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}(?![\w:])",
    "Serial number": r"\b(?:GPU-|MIG-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b"
    r"|\bi-[0-9a-f]{8,17}\b|\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b|(?<!\d)\d{13}(?!\d)",
    "Access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "Account number": r"(?<!\d)(?:\d{12}|\d{4}-\d{4}-\d{4})(?!\d)",
}
_ACCOUNT = re.compile(FORMS["Account number"])
_ANY_FORM = re.compile("|".join(f"(?P<f{i}>{form})" for i, form in enumerate(FORMS.values())))

#: Fields that hold names from the job's own programs, by type and name.
PROGRAM_NAMES = {
    ("Operator", "name"),
    ("EventTypeTime", "name"),
    ("ClassShare", "name"),
    ("StepRow", "mode"),
    ("CloseUpLane", "event_type"),
    ("LoaderSetup", "iterator"),
    ("Function", "name"),
    ("Remark", "name"),
}
#: Kind of the names in other fields, by type and name.
NAMES = {
    ("JobFacts", "name"): "Job name",
    ("NodeFacts", "name"): "Node",
    ("Remark", "place"): "File of the job",
    ("Remark", "file"): "File of the job",
    ("Remark", "row"): "Row of a log",
    ("Remark", "node"): "Node",
    ("Function", "file"): "File of Python code",
}
#: Words in the names that frameworks and their profilers give: operators, kernels, event types, devices, settings.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a accessor accumulate activation active adagrad adam adamw adaptive add addcdiv addcmul addmm addn
        address affine agent alg algorithm alias align alignment all allgather alloc allreduce alltoall
        alpha amp ampere and anonymous any apply arange arch arg argmax argmin args arithmetic arr array as
        assert assign async asynchronous at aten attention attribute attributes auto autograd average avg
        awaitable b backend backprop backward backwards baddbmm barrier base batch batched batches beta
        bfloat bgrad bias bin binary bincount binedges block blocks bmm bn bool borrowed both bottlenecks
        bound bounds broadcast buffer bw bwd by byte bytes bytespersecond c cache calculator call callback
        capture captured capturing cask cast cat categorical ceil cgemm char check chunk clamp class clear
        clip clone cnn coalesced codegen col collate collective collectives columns combined comm command
        compact compare compatible compiled complete complex compute concat concatenate cond conj const
        constant context contiguous conv convolution convolve copy core cores cos count counted cpp cpu cpus
        create criterion cross crossentropy cta cub cublas cuda cudnn cufft cumsum cunn curand custom
        cutlass cv d data dataloader dataloaders dataloading datapoints dataset decltype decode decoder
        delete delta dense depth depthwise destroy detach detail details dev device dgemm dgrad diff
        differentiable dim dims direct disk dispatch dist distances distributed distribution div divide
        divisor dma do done dot double driver drop dropout dto dtod dtoh dtype dtypes dynamo eager einsum
        elapsed elem elementwise elu emb embedding embeddings embs empty enable encoder end engine enqueue
        entropy enumerate epilogue eq equal equality erf error eval evaluate evaluated event events evt
        exclusive execute execution executor exp expand expanddims explicit exterior false fast fb fbgemm
        feature features fetch fft fill filter find finite first fix fixed flags flat flatten flip float
        floating floor fma for foreach forward fp fprop frac free from full func function functional
        functions functor fused fw fwd g gamma gather gcgemm ge gelu gemm gemmex gemmk gemv gemvx gen
        general generate generator generic get global gloo gpu gpus grad gradient gradients graph greater
        grid group grouped groupnorm groups gru gt h half handle hard hardswish has hdr head hfp hgemm
        histogram hmma hopper horovod host hto htod huber i id identity if im imag image imma impl implicit
        in increase index indexed indices inductor inf inference info init initialization initialize
        initialized inner inplace input instance instantiated int interior interleave internal interpolate
        invalid inverse inviolation io iops is isend item iter iteration iterator itertools jit job join k
        kernel kernels key keys kl labels lambda large last launch layer layernorm layout ldg le leaky len
        lengths lerp less level library lift like limits lin linalg linear list load loader local log
        logical logit logits logsoftmax long lookup loop loss low lower lstm lt main make malloc manager map
        mask masked mat match math matmul max maximum maxpool mean medium mem memcpy memcpyasync memory
        memset merge metadata metric metrics min minibatch minimum mish mixed mkldnn mlp mm mode modekeys
        model modifier module modules moments momentum mse mul mult multi multinomial multiplies multiply
        multiprocessing multiprocessor n namespace nan narrow native nccl nchw ndhwc neg negative
        negotiate nesterov net network new next nhwc nhwckrsc nll nn no non none nonfused nonzero norm
        normalization normalize not nt null nullary nullptr num number numbers o occupancy of offset offsets
        on ones onesided onesweep op opaque open operator operators ops optim optimizer optional or ordering
        os other others out outlier outliers output over overall p pack packed pad pageable paged parallel
        param parameter parameters params patience peer per percentage permute perseries persistent phase
        philox pin pinned pipeline placement platform plus point pointer pointwise pool pooled pooling
        position post postprocess pow predict prediction predictor prefetch prelude preprocess preserving
        prim priority prob probs process processes processing processor prod profiler prologue properties
        ptr ptx push put py python pytorch q qkv qr quantize quantized query queue r radix ragged rand
        randint random randperm range ratio read ready reason rebatch receive record recv reduce reduced
        reducer reduction ref region relu remainder remapper remote reorder repeat representation req
        request res reserve reshape resize resolve resource response restrict result reverse ring rms
        rmsprop rnn roll round row rows rowwise rsqrt rsub rule ruleparameters ruletriggered run runtime s
        sample sampler scal scalar scale scaled scaling scan scatter score scudnn sdd sdpa searchsorted
        segments select self send sequence sequential set severity sgd sgemm shallow shape shapes shared
        shuffle sigmoid sign silu simple sin single singleread size sizes skip slice sliced slow sm small
        smooth soft softmax softplus sort sparse split splitk splits sqrt square squeeze stack stage start
        state stats status std stddev step steps stop store stream streams stride strided stridedslice
        string struct sub submit submodule subtract sum sumpooling sums swap swiglu sync synchronization
        synchronize system t tan tanh tape target task tc templates tensor tensordot tensorop tensors test
        tf tfe thread threads threshold throughput thrust tile tiled tiles time timeline timestamp tn to top
        topk torch total tr trace train trainer training traits transform transmit transpose triangular
        triggered tril triton triu trivial true trunc truncation tt tuple turing type u ul unary unbind
        unfold uniform unique unpack unpinned unpool unrolled unsafe unsigned unsqueeze unused unweighted
        update upper upsample usage use utilization utils v val valid validate value values var variable vec
        vector vectorize vectorized version view violation violations void volatile volta w wait warmup warp
        weight weighted weights wgrad where while window winograd with without wo work worker workers
        workload workloads wrapper write x xentropy xmma y z zero zeros zip
        """,
    )
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\x00-\x7f]+")
_MAX_DIGITS, _MAX_LENGTH = 5, 300
#: Names of nodes that are searched in sentences.
_MAX_NODES = 64


@lru_cache(maxsize=1 << 16)
def is_common(name: str) -> bool:
    """Whether a name consists of words of the frameworks, and so identifies nobody."""
    if len(name) > _MAX_LENGTH or not name.isprintable() or _ANY_FORM.search(name):
        return False
    return all(
        len(word) <= _MAX_DIGITS if word.isdecimal() else word.lower() in _WORDS
        for word in _WORD.findall(name)
    )


class Identifier(Struct, frozen=True, kw_only=True):
    """One kind of identifying information, with every name of it in a report."""

    kind: str
    #: Distinct, in the order of the report.
    names: tuple[str, ...]
    #: Top-level fields of ``report.json`` that hold them.
    where: tuple[str, ...]


def is_redacted(report: Report) -> bool:
    """Whether names were replaced when the report was made."""
    return OPTION in shlex.split(report.command)[3:]


def identifiers(report: Report) -> tuple[Identifier, ...]:
    """Identifying information by kind; in a redacted report only what has one of the forms."""
    found: dict[str, dict[str, None]] = {}
    where: dict[str, dict[str, None]] = {}
    redacted = is_redacted(report)
    job, nodes = report.job.name, _any_of([node.name for node in report.job.nodes])

    def add(kind: str, name: str, field: str) -> None:
        found.setdefault(kind, {})[name] = None
        where.setdefault(kind, {})[field] = None

    for field in report.__struct_fields__:
        for owner, name, text in _texts("Report", field, getattr(report, field)):
            if not redacted:
                if kind := NAMES.get((owner, name)) if text else None:
                    add(kind, text, field)
                elif (owner, name) in PROGRAM_NAMES and not is_common(text):
                    add("Name from a program", text, field)
                if (owner, name) == ("Report", "command") and job in text:
                    add("Job name", job, field)
                if match := nodes.search(text):
                    add("Node", match[0], field)
            for match in _ANY_FORM.finditer(text):
                add(list(FORMS)[int((match.lastgroup or "f0")[1:])], match[0], field)
                # Within an ARN or the name of a bucket.
                for account in _ACCOUNT.findall(match[0]):
                    add("Account number", account, field)
    return tuple(
        Identifier(kind=kind, names=tuple(names), where=tuple(where[kind])) for kind, names in found.items()
    )


def _any_of(names: list[str]) -> re.Pattern[str]:
    """Pattern that finds the names in sentences; of very many names only the first ones."""
    searched = sorted(names[:_MAX_NODES], key=len, reverse=True)
    return re.compile(
        rf"(?<![\w.-])(?:{'|'.join(map(re.escape, searched))})(?![\w-])" if searched else r"(?!)"
    )


def _texts(owner: str, name: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """Every text in a value, with the type and the field (or the key of a table) that hold it."""
    if isinstance(value, str):
        yield owner, name, value
    elif isinstance(value, Struct):
        for field in value.__struct_fields__:
            yield from _texts(type(value).__name__, field, getattr(value, field))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(owner, name, key)
            yield from _texts(owner, key, one)
    elif isinstance(value, tuple | list):
        for one in value:
            if not isinstance(one, float | int):
                yield from _texts(owner, name, one)
