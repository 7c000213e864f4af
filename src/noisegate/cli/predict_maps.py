"""`noisegate predict` for a model of maps: masks with the palette of the training masks, and uncertainty maps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from noisegate._io.files import check_writable, write_bytes
from noisegate.cli import output
from noisegate.data.maps import MapReader, read_image
from noisegate.data.masks import COMMON_VOID, Coding
from noisegate.errors import InputError

if TYPE_CHECKING:
    from noisegate.fitted import Fitted

FOLDERS = ("masks", "entropy", "variance")


def run(fitted: Fitted, reader: MapReader, data: str, out: Path | None) -> None:
    """Write masks/NAME.png, entropy/NAME.png and variance/NAME.npy for every image of `data`, one at a time."""
    if out is None:
        raise InputError(
            "a model of maps writes a folder of masks and uncertainty maps: name it with --out FOLDER"
        )
    if out.is_file() or out.suffix.lower() in (".csv", ".parquet"):
        raise InputError(f"a model of maps writes a folder, not the file {out}: --out FOLDER")
    check_writable(out)
    files, names = reader.files(data), reader.names(data)
    stems = [os.path.splitext(name)[0] for name in names]
    twice = sorted({stem for stem in stems if stems.count(stem) > 1}) if len(set(stems)) < len(stems) else []
    if twice:
        raise InputError(f"two images would write the mask {twice[0]}.png; predict them apart")
    for file, stem in zip(files, stems, strict=True):
        labels, entropy, variance = predict_map(fitted, read_image(file, reader.channels))
        write_bytes(out / "masks" / f"{stem}.png", mask_png(labels, reader.coding))
        write_bytes(out / "entropy" / f"{stem}.png", grey_png(entropy))
        write_bytes(out / "variance" / f"{stem}.npy", npy(variance))
    output.say(
        f"{len(files):,} masks written to {out / 'masks'}, their uncertainty to {out}/entropy and /variance"
    )


def predict_map(
    fitted: Fitted, image: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float16]]:
    """Classes (H, W), entropy as a share of the largest (H, W), and the variance of every class (K, H, W).

    The variance is that of the predictive distribution over samples; of a model without samples p (1 - p).
    """
    import torch

    device = next(fitted.network.parameters()).device
    with torch.no_grad():
        outputs = fitted.network(torch.from_numpy(image[None]).to(device))
        size = (image.shape[1], image.shape[2])
        probs = fitted.objective.probs(outputs, size)[0]
        k = len(probs)
        entropy = -(probs * probs.clamp_min(1e-12).log()).sum(0) / np.log(k)
        sampled = getattr(fitted.objective, "variance", None)
        variance = probs * (1 - probs) if sampled is None else sampled(outputs, size)[0]
    return (
        probs.argmax(0).to(torch.uint8 if k <= 256 else torch.int32).cpu().numpy(),
        entropy.clamp(0, 1).float().cpu().numpy(),
        variance.half().cpu().numpy(),
    )


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
