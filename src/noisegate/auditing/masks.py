"""Which masks of a dataset to check: cross-fitted networks, a score for every image, regions, pictures."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate._io.files import write_bytes
from noisegate.data.dataset import Dataset, Inputs
from noisegate.data.loader import fetch
from noisegate.data.maps import MapReader
from noisegate.data.masks import voc_palette
from noisegate.errors import InputError
from noisegate.quality.maps import Region, map_quality, map_regions, overlay

if TYPE_CHECKING:
    import pandas as pd

#: How many pictures are written, of the images that are probably worst.
PICTURES = 50


@dataclass(frozen=True, eq=False)
class MaskAudit:
    """What an audit of masks found.

    Attributes
    ----------
    quality : float array (N,)
        Of every mask, in [0, 1]: see `noisegate.quality.map_quality`.
    regions : list of list of Region
        Of every mask, those with most wrong pixels first.
    files : list of str
        What the images are called.
    classes : tuple of str
    """

    quality: npt.NDArray[np.float64]
    regions: list[list[Region]]
    files: list[str]
    classes: tuple[str, ...]

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The expected number of wrong pixels in the regions of every mask."""
        return np.array([sum(region.weight for region in found) for found in self.regions])

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The masks, those to look at first first: by wrong pixels, those without regions by their quality."""
        return np.lexsort((self.quality, -self.weights)).astype(np.int64)

    @property
    def issues(self) -> pd.DataFrame:
        """One line a mask, worst first: row, file, quality, regions, wrong_pixels, is_label_issue."""
        import pandas as pd

        counts = np.array([len(found) for found in self.regions])
        frame = pd.DataFrame(
            {
                "row": np.arange(len(self.quality)),
                "file": self.files,
                "quality": self.quality,
                "regions": counts,
                "wrong_pixels": np.rint(self.weights).astype(np.int64),
                "is_label_issue": counts > 0,
            }
        )
        return frame.iloc[self.order].reset_index(drop=True)

    @property
    def region_table(self) -> pd.DataFrame:
        """One line a region, in the order of `issues`: row, file, given and suggested class, pixels, box, ..."""
        import pandas as pd

        lines = [
            {
                "row": int(row),
                "file": self.files[row],
                "given": self.classes[region.given],
                "suggested": self.classes[region.suggested],
                "pixels": region.pixels,
                "quality": region.quality,
                **dict(zip(("top", "left", "bottom", "right"), region.box, strict=True)),
            }
            for row in self.order
            for region in self.regions[row]
        ]
        names = ["row", "file", "given", "suggested", "pixels", "quality", "top", "left", "bottom", "right"]
        return pd.DataFrame(lines, columns=names)

    def save(self, folder: str | Path, data: Dataset, pictures: int = PICTURES) -> None:
        """Write `issues.csv`, `regions.csv`, and the overlays of the worst masks as `overlays/ROW.png`."""
        out = Path(folder)
        for name, frame in (("issues.csv", self.issues), ("regions.csv", self.region_table)):
            write_bytes(out / name, frame.to_csv(index=False, float_format="%.6g").encode())
        for row in self.order[:pictures]:
            if self.regions[row]:
                write_bytes(out / "overlays" / f"{row}.png", self.overlay_png(int(row), data))

    def overlay_png(self, row: int, data: Dataset) -> bytes:
        """The image of one row under its mask, suspicious regions in the colour of what they probably are."""
        from PIL import Image

        reader = data.reader
        colours = (
            reader.coding.colours()
            if isinstance(reader, MapReader)
            else np.array(voc_palette(len(self.classes)), np.uint8)
        )
        picture = overlay(one(data.train.x, row), data.train.y[row], self.regions[row], colours)
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, format="PNG")
        return buffer.getvalue()


def one(x: Inputs, row: int) -> npt.NDArray[np.uint8]:
    """The image of one row, (C, H, W)."""
    return fetch(x, np.array([row]))[0]


def audit_masks(
    data: Dataset,
    *,
    method: Any = "auto",
    network: Any = "auto",
    recipe: Any = None,
    folds: int = 3,
    seed: int = 0,
    device: str = "auto",
    folder: str | Path | None = None,
    regions: Mapping[str, Any] | None = None,
) -> MaskAudit:
    """Find the training masks to check.

    Each of `folds` networks is trained on the other folds and judges its own, so that no mask is judged by a
    network that has seen it.

    Parameters
    ----------
    data : Dataset
        With a label for every pixel.
    method, network, recipe, seed, device
        As in `noisegate.train`.
    folds : int, default=3
        At least 2.
    folder : path, optional
        Checkpoints of the folds go there; the same call after a kill goes on.
    regions : mapping, optional
        What `noisegate.quality.map_regions` takes: threshold, margin, smallest.
    """
    from noisegate.runs.train import train

    if not data.train.maps:
        raise InputError(f"{data.name} has no label for every pixel: ng.audit is for single labels")
    if not 2 <= folds <= len(data.train):
        raise InputError(f"folds must lie between 2 and the {len(data.train)} images, got {folds}")
    places = np.random.default_rng([seed, 0xF01D]).permutation(len(data.train))
    quality = np.ones(len(data.train))
    found: list[list[Region]] = [[] for _ in quality]
    for number, held in enumerate(np.array_split(places, folds)):
        kept = np.sort(np.setdiff1d(places, held))
        part = dataclasses.replace(data, train=data.train.take(kept), test=None)
        place = None if folder is None else Path(folder) / f"fold-{number}"
        fitted = train(part, method, network, recipe, seed, device, folder=place, evaluate_every=0)
        for row in held.tolist():
            probs = fitted.predict_proba(one(data.train.x, row)[None])[0]
            quality[row] = map_quality(probs, data.train.y[row])
            found[row] = map_regions(probs, data.train.y[row], **(regions or {}))
    names = data.info.get("files", {}).get("train") or [str(row) for row in range(len(data.train))]
    return MaskAudit(quality, found, list(names), data.classes)
