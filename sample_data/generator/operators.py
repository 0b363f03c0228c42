"""The operators of one training step: which run inside which, and which start work on the GPU.

The pattern is laid out once, as shares of a stretch; a step scales it to its own times. Rounding keeps
the order of times, so what is nested stays nested.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LAYERS = 16


@dataclass(frozen=True, kw_only=True)
class Call:
    """An operator at work, from ``begin`` to ``end`` as shares of the pattern."""

    name: str
    begin: float
    end: float
    #: The kernel that it starts on the GPU; empty if none.
    kernel: str


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What runs on the GPU, in the same shares."""

    begin: float
    end: float
    call: Call


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What happens in one stretch."""

    #: Outer before inner.
    calls: tuple[Call, ...]
    #: One at a time.
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class _Tree:
    name: str
    weight: float = 1.0
    kernel: str = ""
    inner: tuple[_Tree, ...] = field(default=())


def _chain(weight: float, kernel: str, *names: str) -> _Tree:
    """Return operators that call one the next; the last one starts the kernel."""
    *outer, last = names
    tree = _Tree(last, 1.0, kernel)
    for name in reversed(outer):
        tree = _Tree(name, 1.0, "", (tree,))
    return _Tree(tree.name, weight, tree.kernel, tree.inner)


def _laid_out(tree: _Tree, begin: float, end: float) -> list[Call]:
    """Return the calls of a tree within a stretch, outer before inner."""
    calls = [Call(name=tree.name, begin=begin, end=end, kernel=tree.kernel)]
    room = 0.9 * (end - begin)
    at = begin + 0.06 * (end - begin)
    total = sum(one.weight for one in tree.inner)
    for one in tree.inner:
        width = room * one.weight / total
        calls += _laid_out(one, at, at + 0.98 * width)
        at += width
    return calls


def _pattern(*trees: _Tree) -> Pattern:
    """Lay operators out one after another; a kernel runs until shortly before the next one starts."""
    calls = _laid_out(_Tree("", 1.0, "", trees), 0.0, 1.0)[1:]
    starting = [call for call in calls if call.kernel]
    begins = [0.8 * call.begin + 0.2 * call.end for call in starting]
    kernels = [
        Kernel(begin=begin, end=begin + 0.94 * (following - begin), call=call)
        for call, begin, following in zip(starting, begins, [*begins[1:], 1.0], strict=True)
    ]
    return Pattern(calls=tuple(calls), kernels=tuple(kernels))


def _layer(layer: int) -> tuple[_Tree, ...]:
    convolution = "implicit_convolve_sgemm" if layer % 3 else "cudnn_winograd_nonfused"
    return (
        _chain(
            6.0 + layer % 4,
            convolution,
            "aten::conv2d",
            "aten::convolution",
            "aten::_convolution",
            "aten::cudnn_convolution",
        ),
        _chain(
            2.5,
            "bn_fw_tr_1C11_singleread",
            "aten::batch_norm",
            "aten::_batch_norm_impl_index",
            "aten::cudnn_batch_norm",
        ),
        _chain(1.0, "vectorized_elementwise_kernel", "aten::relu_", "aten::threshold_"),
    )


def _layer_backward(layer: int) -> tuple[_Tree, ...]:
    convolution = _Tree(
        "CudnnConvolutionBackward",
        11.0 + layer % 4,
        "",
        (
            _Tree(
                "aten::cudnn_convolution_backward",
                1.0,
                "",
                (
                    _Tree("aten::cudnn_convolution_backward_input", 1.0, "cudnn_dgrad"),
                    _Tree("aten::cudnn_convolution_backward_weight", 1.2, "cudnn_wgrad"),
                ),
            ),
        ),
    )
    return (
        _chain(1.2, "vectorized_elementwise_kernel", "ReluBackward1", "aten::threshold_backward"),
        _chain(3.0, "bn_bw_1C11_singleread", "CudnnBatchNormBackward", "aten::cudnn_batch_norm_backward"),
        convolution,
    )


#: In the main thread, during the forward pass.
FORWARD = _pattern(
    _chain(3.0, "Memcpy HtoD (Pinned -> Device)", "aten::to", "aten::copy_"),
    *(one for layer in range(LAYERS) for one in _layer(layer)),
    _chain(1.0, "reduce_kernel", "aten::adaptive_avg_pool2d", "aten::mean"),
    _chain(2.0, "volta_sgemm_128x64_tn", "aten::linear", "aten::addmm"),
    _chain(1.0, "cunn_SoftMaxForward", "aten::log_softmax", "aten::_log_softmax"),
    _chain(1.0, "cunn_ClassNLLCriterion_updateOutput", "aten::nll_loss", "aten::nll_loss_forward"),
)
#: In the thread of the engine that runs backward.
BACKWARD = _pattern(
    _chain(1.0, "cunn_ClassNLLCriterion_updateGradInput", "NllLossBackward", "aten::nll_loss_backward"),
    _chain(1.0, "cunn_SoftMaxBackward", "LogSoftmaxBackward", "aten::_log_softmax_backward_data"),
    _chain(2.5, "volta_sgemm_64x64_nt", "AddmmBackward", "aten::mm"),
    _chain(1.0, "vectorized_elementwise_kernel", "MeanBackward1", "aten::div"),
    *(one for layer in reversed(range(LAYERS)) for one in _layer_backward(layer)),
)
#: In the main thread again.
OPTIMIZER = _pattern(
    _chain(1.0, "multi_tensor_apply_kernel", "aten::_foreach_mul_"),
    _chain(1.4, "multi_tensor_apply_kernel", "aten::_foreach_add_"),
)
