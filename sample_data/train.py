"""A training job to record: two processes, one of which loads its data slowly.

    record-job --out my-job -- python sample_data/train.py

Both ranks train the same small network on images of ten kinds, each on its own files, and average their gradients in
each step. The images of rank 1 are stored in six times the resolution. It takes longer to unpack and shrink them than
to train on them, and rank 0 waits for rank 1.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import jobrecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    Array = npt.NDArray[np.float32]

EPOCHS = 8
#: Of each rank; the last ones are for validation.
FILES = 16
VALIDATION_FILES = 3
BATCH = 256
#: Pixels of a side, as the network sees images.
SIDE = 32
KINDS = 10
HIDDEN = 1024
LEARNING_RATE = 0.1


class Images:
    """A loader: a batch from each file."""

    #: As a DataLoader of PyTorch says that the training process loads by itself.
    num_workers = 0

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[tuple[Array, npt.NDArray[np.int64]]]:
        for file in self.files:
            with np.load(file) as content:
                stored, kinds = content["images"], content["kinds"]
            factor = stored.shape[1] // SIDE
            blocks = stored.reshape(len(stored), SIDE, factor, SIDE, factor)
            images = blocks.mean(axis=(2, 4), dtype=np.float32) / 255 - 0.5
            yield images.reshape(len(stored), -1), kinds


class Network:
    """One hidden layer, trained by gradient descent."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.weights = [
            random.normal(0, 0.03, (SIDE * SIDE, HIDDEN)).astype(np.float32),
            random.normal(0, 0.03, (HIDDEN, KINDS)).astype(np.float32),
        ]

    def forward(self, images: Array) -> tuple[Array, Array]:
        """Outputs of the hidden layer, and probabilities of the kinds."""
        hidden = np.maximum(images @ self.weights[0], 0)
        scores = hidden @ self.weights[1]
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)

    def backward(self, images: Array, hidden: Array, errors: Array) -> list[Array]:
        """Gradients of the weights, from the errors of the probabilities."""
        inner = errors @ self.weights[1].T * (hidden > 0)
        return [images.T @ inner, hidden.T @ errors]

    def update(self, gradients: list[Array]) -> None:
        """One step of gradient descent."""
        pairs = zip(self.weights, gradients, strict=True)
        self.weights = [weights - LEARNING_RATE * gradient for weights, gradient in pairs]


def write_files(folder: Path, factor: int) -> list[Path]:
    """Files of images in `factor` times the resolution: a pattern for each kind, and noise."""
    folder.mkdir()
    patterns = np.random.default_rng(0).integers(0, 40, (KINDS, SIDE, SIDE), np.uint8)
    random = np.random.default_rng(factor)
    files = []
    for number in range(FILES):
        kinds = random.integers(0, KINDS, BATCH)
        images = patterns[kinds] + random.integers(0, 216, (BATCH, SIDE, SIDE), np.uint8)
        files.append(folder / f"{number}.npz")
        np.savez_compressed(files[-1], images=images.repeat(factor, 1).repeat(factor, 2), kinds=kinds)
    return files


def averaged(gradients: list[Array], other: Connection, *, first: bool) -> list[Array]:
    """Mean of the gradients of both ranks."""
    if first:
        other.send(gradients)
        received = other.recv()
    else:
        received = other.recv()
        other.send(gradients)
    return [(mine + theirs) / 2 for mine, theirs in zip(gradients, received, strict=True)]


def train(rank: int, other: Connection, files: list[Path]) -> None:
    """Train one rank; `other` leads to the other one."""
    training, validation = Images(files[:-VALIDATION_FILES]), Images(files[-VALIDATION_FILES:])
    network = Network()
    jobrecord.start()
    for epoch in range(EPOCHS):
        for images, kinds in jobrecord.data(training):
            with jobrecord.phase("Forward"):
                hidden, errors = network.forward(images)
            with jobrecord.phase("Backward"):
                errors[np.arange(BATCH), kinds] -= 1
                gradients = network.backward(images, hidden, errors / np.float32(BATCH))
            with jobrecord.phase("AllReduce"):
                gradients = averaged(gradients, other, first=rank == 0)
            with jobrecord.phase("Optimizer"):
                network.update(gradients)
            jobrecord.batch(samples=BATCH)
            jobrecord.step()
        with jobrecord.eval():
            right = [
                network.forward(batch)[1].argmax(1) == kinds for batch, kinds in jobrecord.data(validation)
            ]
        with jobrecord.phase("Checkpoint"):
            np.savez(files[0].parent / "checkpoint.npz", *network.weights)
        if rank == 0:
            print(f"epoch {epoch + 1} of {EPOCHS}: accuracy {np.mean(right):.0%}")


def main() -> int:
    """Start both ranks and wait for them, as a launcher such as torchrun does."""
    context = multiprocessing.get_context("spawn")
    # Each rank computes on one core.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        files = [write_files(Path(folder, "rank-0"), factor=1), write_files(Path(folder, "rank-1"), factor=6)]
        ranks = []
        for rank, other in enumerate(context.Pipe()):
            os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
            ranks.append(context.Process(target=train, args=(rank, other, files[rank])))
            ranks[-1].start()
            # Only the rank may hold its end: so the other one sees if it ends.
            other.close()
        for process in ranks:
            process.join()
    return max(abs(process.exitcode or 0) for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
