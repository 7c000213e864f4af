"""`noisegate predict` for a model of maps: masks with the palette of the training masks, and uncertainty maps."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from noisegate import data as datasets
from noisegate._io.files import check_writable, write_bytes
from noisegate.cli import output
from noisegate.data.dataset import Inputs
from noisegate.data.loader import fetch
from noisegate.data.maps import MapReader, read_image
from noisegate.data.masks import COMMON_VOID, Coding
from noisegate.errors import InputError
from noisegate.quality.maps import overlay

if TYPE_CHECKING:
    from noisegate.fitted import Fitted

#: Width in pixels of each of the pictures that are put side by side.
SIDE = 480
Found = tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float16]]


def run(fitted: Fitted, reader: MapReader, data: str, out: Path | None, root: Path | None = None) -> None:
    """Write what the model says of every image of `data`, one image at a time.

    masks/NAME.png with the values and colours of the training masks; entropy/NAME.png; variance/NAME.npy,
    the variance of each class; pictures/NAME.png, all of it side by side to look at.
    """
    if out is None:
        raise InputError(
            "a model of maps writes a folder of masks and uncertainty maps: name it with --out FOLDER"
        )
    if out.is_file() or out.suffix.lower() in (".csv", ".parquet"):
        raise InputError(f"a model of maps writes a folder, not the file {out}: --out FOLDER")
    images = images_of(reader, data, root)
    check_writable(out)
    for stem, image in images.items():
        pixels = image()
        found = predict_map(fitted, pixels)
        write_bytes(out / "masks" / f"{stem}.png", mask_png(found[0], reader.coding))
        write_bytes(out / "entropy" / f"{stem}.png", grey_png(found[1]))
        write_bytes(out / "variance" / f"{stem}.npy", npy(found[2]))
        write_bytes(out / "pictures" / f"{stem}.png", side_by_side(pixels, *found, reader.coding))
    output.say(
        f"{len(images):,} masks written to {out / 'masks'}, their uncertainty to {out}/entropy and /variance; "
        f"to look at: {out}/pictures (image, classes, entropy, variance)"
    )


def images_of(
    reader: MapReader, data: str, root: Path | None
) -> dict[str, Callable[[], npt.NDArray[np.uint8]]]:
    """Functions that read the images of a folder, a file, or the test rows of a named dataset, by their names."""
    if data in datasets.DATASETS:
        named = datasets.load(data, root=root)
        part, rows = ("train", named.train) if named.test is None else ("test", named.test)
        if "pairs" not in named.info:
            return {str(row): partial(_row, rows.x, row) for row in range(len(rows))}
        files = [image for image, _ in named.info["pairs"][part]]
        names = [
            os.path.relpath(file, os.path.commonpath([os.path.dirname(f) for f in files])) for file in files
        ]
    else:
        files, names = reader.files(data), reader.names(data)
    stems = [os.path.splitext(name)[0] for name in names]
    if len(set(stems)) < len(stems):
        twice = next(stem for stem in sorted(stems) if stems.count(stem) > 1)
        raise InputError(f"two images would write the mask {twice}.png; predict them apart")
    return {stem: partial(read_image, file, reader.channels) for stem, file in zip(stems, files, strict=True)}


def _row(x: Inputs, row: int) -> npt.NDArray[np.uint8]:
    return fetch(x, np.array([row]))[0]


def predict_map(fitted: Fitted, image: npt.NDArray[np.uint8]) -> Found:
    """Classes (H, W), entropy as a share of the largest (H, W), and the variance of every class (K, H, W).

    The variance is that of the predictive distribution over samples; of a model without samples p (1 - p).
    """
    import torch

    device = next(fitted.network.parameters()).device
    with torch.no_grad():
        outputs = fitted.network(torch.from_numpy(image[None]).to(device))
        probs, variance = fitted.objective.probs_and_variance(outputs, (image.shape[1], image.shape[2]))
        k = probs.shape[1]
        classes = probs[0].argmax(0).to(torch.uint8 if k <= 256 else torch.int32)
        entropy = torch.special.entr(probs[0]).sum(0) / np.log(k)
    return (
        classes.cpu().numpy(),
        entropy.clamp(0, 1).float().cpu().numpy(),
        variance[0].half().cpu().numpy(),
    )


def side_by_side(
    image: npt.NDArray[np.uint8],
    classes: npt.NDArray[np.uint8],
    entropy: npt.NDArray[np.float32],
    variance: npt.NDArray[np.float16],
    coding: Coding,
) -> bytes:
    """Encode a picture: the image, its predicted classes, and bright where they are large entropy and variance.

    The variance is shown as the standard deviation of the class with the largest one, of at most 1/2.
    """
    from matplotlib import colormaps
    from PIL import Image

    heat = colormaps["magma"]
    spread = 2 * np.sqrt(variance.max(0).astype(np.float32))
    panels = [
        np.broadcast_to(image.transpose(1, 2, 0), (*image.shape[1:], 3)),
        overlay(image, classes, [], coding.colours()),
        *(heat(each, bytes=True)[..., :3] for each in (entropy, spread)),
    ]
    height, width = image.shape[1:]
    size = (SIDE, max(1, round(SIDE * height / width)))
    whole = Image.new("RGB", (len(panels) * size[0], size[1]))
    for place, panel in enumerate(panels):
        way = Image.Resampling.NEAREST if width < SIDE else Image.Resampling.BOX
        whole.paste(Image.fromarray(np.ascontiguousarray(panel)).resize(size, way), (place * size[0], 0))
    return _png(whole)


def mask_png(labels: npt.NDArray[np.uint8], coding: Coding) -> bytes:
    """Encode a palette PNG with the values and colours of the training masks."""
    from PIL import Image

    numbers = coding.encode(labels)
    if numbers.max(initial=0) > 255:
        return _png(Image.fromarray(numbers.astype(np.uint16)))
    image = Image.fromarray(numbers.astype(np.uint8))
    palette = np.zeros((256, 3), np.uint8)
    index = coding.encode(np.arange(len(coding.classes)))
    palette[index] = coding.colours()
    void = coding.void[0] if coding.void else COMMON_VOID
    if coding.void_colour is not None and void < len(palette) and void not in index:
        palette[void] = coding.void_colour
    image.putpalette(palette.ravel().tolist())
    return _png(image)


def grey_png(values: npt.NDArray[np.float32]) -> bytes:
    """Encode numbers in [0, 1] as a greyscale PNG."""
    from PIL import Image

    return _png(Image.fromarray(np.rint(255 * values).astype(np.uint8)))


def _png(image: object) -> bytes:
    import io

    buffer = io.BytesIO()
    image.save(buffer, format="PNG")  # type: ignore[attr-defined]
    return buffer.getvalue()


def npy(array: npt.NDArray[np.float16]) -> bytes:
    """The bytes of an .npy file."""
    import io

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
