"""A classifier as a program that runs without noisegate."""

from __future__ import annotations

import copy
import importlib.util
import io
import logging
from pathlib import Path

import torch
from torch import Tensor, nn

from noisegate._io.files import check_writable, write_bytes
from noisegate.errors import InputError, first_line

SUFFIXES = (".pt2", ".onnx")


class Probabilities(nn.Module):
    """A network and its objective as one module: raw inputs in, probabilities of the clean class out."""

    def __init__(self, network: nn.Module, objective: nn.Module) -> None:
        super().__init__()
        self.network, self.objective = network, objective

    def forward(self, x: Tensor) -> Tensor:
        probs = self.objective.probs(self.network(x))  # type: ignore[operator]
        return (probs / probs.sum(1, keepdim=True)).float()


def write_program(
    network: nn.Module, objective: nn.Module, shape: tuple[int, ...], pixels: bool, path: Path
) -> None:
    """Write the program of `Probabilities` to a .pt2 or .onnx file; any number of rows goes in.

    Parameters
    ----------
    network, objective : nn.Module
    shape : tuple of int
        Shape of one input.
    pixels : bool
        The inputs are uint8.
    path : Path
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"a program is written to a file that ends in {' or '.join(SUFFIXES)}, got {path}")
    lacking = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if path.suffix == ".onnx" and lacking:
        raise InputError(
            f"writing .onnx needs the package {lacking[0]}: pip install {' '.join(lacking)}; .pt2 needs nothing"
        )
    check_writable(path.parent)
    module = (
        Probabilities(copy.deepcopy(network), copy.deepcopy(objective)).cpu().eval().requires_grad_(False)
    )
    # Two rows: a dimension of one would be taken for a constant.
    example = torch.zeros(2, *shape, dtype=torch.uint8 if pixels else torch.float32)
    rows = torch.export.Dim("rows", min=1)
    try:
        with torch.no_grad():
            program = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
        content = _onnx(program) if path.suffix == ".onnx" else _torch(program)
    except Exception as error:  # what cannot be traced or translated has no one kind of exception
        raise InputError(
            f"this classifier ({type(objective).__name__}) cannot be written as {path.suffix}: "
            f"{first_line(error)}; those of method='auto' and of most others can, those that sample (het) cannot"
        ) from None
    write_bytes(path, content)


def _torch(program: torch.export.ExportedProgram) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _onnx(program: torch.export.ExportedProgram) -> bytes:
    """The program with its weights, as one file."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # it lists the operators of libraries that are not installed
    try:
        # The optimiser's fusion of minimum and maximum leaves out its constants; runtimes optimise anyway.
        translated = torch.onnx.export(
            program, (), input_names=["x"], output_names=["probabilities"], verbose=False, optimize=False
        )
    finally:
        log.setLevel(level)
    return bytes(translated.model_proto.SerializeToString())  # type: ignore[union-attr]
