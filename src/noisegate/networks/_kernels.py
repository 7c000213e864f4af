# mypy: ignore-errors
"""Kernels in Triton, which comes with torch where torch knows GPUs; imported only there."""

import triton
import triton.language as tl


@triton.jit
def weight_gradient(
    x,
    grad,
    out,
    n_places,
    n_blocks: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    n_in: tl.constexpr,
    n_out: tl.constexpr,
    in_tile: tl.constexpr,
    out_tile: tl.constexpr,
    block: tl.constexpr,
):
    """The gradient in one row of the filters, three taps, over one part of all places; see `_conv3x3`.

    Program (s, 3 t + i) is about part s, tile t of the channels and row i of the filters. A place is an image's row
    and column, x and grad are (places, channels).
    """
    part, tile, row = tl.program_id(0), tl.program_id(1) // 3, tl.program_id(1) % 3
    into = (tile % (n_in // in_tile)) * in_tile + tl.arange(0, in_tile)
    outof = (tile // (n_in // in_tile)) * out_tile + tl.arange(0, out_tile)
    left = tl.zeros((out_tile, in_tile), tl.float32)
    middle = tl.zeros((out_tile, in_tile), tl.float32)
    right = tl.zeros((out_tile, in_tile), tl.float32)
    for number in range(n_blocks):
        place = (part * n_blocks + number) * block + tl.arange(0, block)
        column = place % width
        seen = (place // width) % height + (row - 1)  # the row of the image that this row of the filter sees
        inside = (place < n_places) & (seen >= 0) & (seen < height)
        g = tl.trans(tl.load(grad + place[:, None] * n_out + outof[None, :], mask=inside[:, None], other=0.0))
        below = x + (row - 1) * width * n_in + place[:, None] * n_in + into[None, :]
        middle = tl.dot(g, tl.load(below, mask=inside[:, None], other=0.0), middle)
        left = tl.dot(g, tl.load(below - n_in, mask=(inside & (column > 0))[:, None], other=0.0), left)
        right = tl.dot(
            g, tl.load(below + n_in, mask=(inside & (column < width - 1))[:, None], other=0.0), right
        )
    at = out + part * (n_out * 9 * n_in) + outof[:, None] * (9 * n_in) + row * 3 * n_in + into[None, :]
    tl.store(at, left)
    tl.store(at + n_in, middle)
    tl.store(at + 2 * n_in, right)
