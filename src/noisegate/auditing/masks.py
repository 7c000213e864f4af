"""Audit masks: cross-fitted networks, a score for every image, suspicious regions, pictures."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate._io.files import write_bytes
from noisegate.auditing import stored
from noisegate.auditing.crossfit import Fitting
from noisegate.auditing.regions import MASKS, StoredRegions, keep_inputs
from noisegate.data.dataset import Dataset, Inputs
from noisegate.data.loader import fetch
from noisegate.data.maps import MapReader
from noisegate.data.masks import voc_palette
from noisegate.errors import InputError
from noisegate.noise.base import VOID
from noisegate.quality.maps import Region, map_quality, map_regions, overlay

if TYPE_CHECKING:
    import pandas as pd

#: Maximum number of pictures to write, of the worst images.
PICTURES = 50
#: Maximum number of images that the report lists, and of images from memory stored with the audit.
LISTED, KEPT = 100, 500


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
        Names of the images.
    classes : tuple of str
    settings : mapping
        How the networks were trained.
    agreement, majority : float
        The share of pixels that the networks give their given class, and that of the most frequent
        class: networks that do no better have learnt nothing, and their judgement is worth nothing.
    """

    quality: npt.NDArray[np.float64]
    regions: list[list[Region]]
    files: list[str]
    classes: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    agreement: float = 1.0
    majority: float = 0.0

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The expected number of wrong pixels in the regions of every mask."""
        return np.array([sum(region.weight for region in found) for found in self.regions])

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The masks, worst first: by expected wrong pixels, and those without regions by quality."""
        return np.lexsort((self.quality, -self.weights)).astype(np.int64)

    @property
    def issues(self) -> pd.DataFrame:
        """One line per mask, worst first: row, file, quality, regions, wrong_pixels, is_label_issue."""
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
        """One line per region, in the order of `issues`: row, file, given and suggested class, pixels, box, ..."""
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

    def save(
        self,
        folder: str | Path,
        data: Dataset,
        pictures: int = PICTURES,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write an audit folder for the report, `noisegate review` and `noisegate apply`.

        Its rows are the regions. The folder also gets `issues.csv` and `regions.csv`, and the overlays of the
        worst masks as `overlays/ROW.png`.

        Parameters
        ----------
        folder : path
        data : Dataset
            What was audited.
        pictures : int, default=50
            Maximum number of overlays.
        options : mapping, optional
            Options of the loader, as they were given.
        """
        out = Path(folder)
        for name, frame in (("issues.csv", self.issues), ("regions.csv", self.region_table)):
            write_bytes(out / name, frame.to_csv(index=False, float_format="%.6g").encode())
        for row in self.order[:pictures]:
            if self.regions[row]:
                write_bytes(out / "overlays" / f"{row}.png", self.overlay_png(int(row), data))
        regions = [(int(row), region) for row in self.order for region in self.regions[row]]
        StoredRegions.of(regions).save(out)
        if "pairs" not in data.info:
            kept = self.order[: min(KEPT, int((self.weights > 0).sum()))]
            keep_inputs(out, fetch(data.train.x, kept), data.train.y[kept], kept)
        stored.write(out, stored.StoredAudit(self._described(data, options or {}), self._rows(regions)))

    def _rows(self, regions: list[tuple[int, Region]]) -> pd.DataFrame:
        """Regions as the rows of an audit, see `noisegate.auditing.stored`."""
        import pandas as pd

        numbers: dict[int, int] = {}
        lines = []
        for place, (row, region) in enumerate(regions):
            numbers[row] = numbers.get(row, 0) + 1
            line = {
                "row": place,
                "id": f"{self.files[row]}, region {numbers[row]} of {len(self.regions[row])}",
                "given_label": region.given,
                "suggested_label": region.suggested,
                "suggested_probability": region.confidence,
                "quality": region.quality,
                "p_wrong": 1.0 - region.quality,
                # Likelihoods of pixels are not calibrated for regions: none is called surely wrong.
                "is_label_issue": True,
                "is_sure": False,
                "image": self.files[row],
                "pixels": region.pixels,
            }
            lines.append(line)
        return pd.DataFrame(lines, columns=[*stored.COLUMNS, "image", "pixels"])

    def _described(self, data: Dataset, options: Mapping[str, Any]) -> dict[str, Any]:
        """The content of audit.json."""
        worst, first = self.issues.head(LISTED), dict[str, int]()
        for place, name in enumerate(self.region_table["file"]):
            first.setdefault(str(name), place)
        images = [
            {**line, "region": first.get(str(line["file"]))}
            for line in worst[["file", "quality", "regions", "wrong_pixels"]].to_dict("records")
        ]
        count = sum(map(len, self.regions))
        content: dict[str, Any] = {
            "audit_id": stored.new_audit_id(),
            "task": MASKS,
            "unit": "regions",
            "classes": list(self.classes),
            "label_values": list(self.classes),
            "settings": dict(self.settings),
            "colours": palette_of(data).tolist(),
            "images": {
                "total": len(self.quality),
                "flagged": int((self.weights > 0).sum()),
                "worst": images,
                "agreement": self.agreement,
                "majority": self.majority,
            },
            "confused": self._confused(),
            "source": stored.source_of("memory", None, count),
        }
        if "pairs" in data.info and isinstance(data.reader, MapReader):
            top = data.info["path"]
            pairs = data.info["pairs"]["train"]
            content |= {
                "source": stored.source_of(MASKS, top, count, options=options),
                "coding": data.reader.coding.to_dict(),
                "pairs": {
                    str(row): [os.path.relpath(file, top) for file in pairs[row]]
                    for row in np.flatnonzero(self.weights > 0).tolist()
                },
            }
        return content

    def _confused(self) -> list[dict[str, Any]]:
        """Pairs of classes by their regions, most first."""
        counts: dict[tuple[int, int], int] = {}
        for region in (region for found in self.regions for region in found):
            pair = region.suggested, region.given
            counts[pair] = counts.get(pair, 0) + 1
        total = max(1, sum(counts.values()))
        return [
            {"true": true, "given": given, "count": count, "share": count / total}
            for (true, given), count in sorted(counts.items(), key=lambda item: -item[1])
        ]

    def overlay_png(self, row: int, data: Dataset) -> bytes:
        """The image of one row under its mask, suspicious regions in the colour of what they probably are."""
        from PIL import Image

        picture = overlay(one(data.train.x, row), data.train.y[row], self.regions[row], palette_of(data))
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, format="PNG")
        return buffer.getvalue()


def palette_of(data: Dataset) -> npt.NDArray[np.uint8]:
    """A colour for every class, (K, 3)."""
    if isinstance(data.reader, MapReader):
        return data.reader.coding.colours()
    return np.array(voc_palette(data.n_classes), np.uint8)


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
    probs: Any = None,
) -> MaskAudit:
    """Find the training masks to check. `noisegate.audit` calls this for data with a label for every pixel.

    Each of `folds` networks is trained on the other folds, so that no mask is judged by a network that has
    seen it.

    Parameters
    ----------
    data : Dataset
        With a label for every pixel.
    method, network, recipe, seed, device
        As in `noisegate.train`.
    folds : int, default=3
        At least 2.
    folder : path, optional
        Folder for checkpoints of the folds: if the process is killed, the same call resumes.
    regions : mapping, optional
        Arguments of `noisegate.quality.map_regions`: threshold, margin, smallest.
    probs : array (N, K, H, W), or sequence of arrays (K, H, W), optional
        Your own out-of-sample probabilities, in the order of the classes. Nothing is trained then.
    """
    if not data.train.maps:
        raise InputError(f"{data.name} has no label for every pixel: ng.audit is for single labels")
    fitting = Fitting(method, network, recipe, seed, device)
    if probs is None:
        judged = _cross_fitted(data, fitting, folds, None if folder is None else Path(folder))
        settings = fitting.described() | {"folds": folds}
    elif len(probs) != len(data.train):
        raise InputError(f"expected probabilities of {len(data.train)} images, got {len(probs)}")
    else:
        judged, settings = enumerate(probs), {"probabilities": "given"}
    quality = np.ones(len(data.train))
    found: list[list[Region]] = [[] for _ in quality]
    repeated, counts = 0, np.zeros(data.n_classes, np.int64)
    for row, given in judged:
        p, y = np.asarray(given), data.train.y[row]
        if p.shape != (data.n_classes, *y.shape):
            raise InputError(
                f"expected probabilities of shape {(data.n_classes, *y.shape)} for image {row}, got {p.shape}"
            )
        quality[row] = map_quality(p, y)
        found[row] = map_regions(p, y, **(regions or {}))
        repeated += int((p.argmax(0) == y).sum())
        counts += np.bincount(y[y != VOID], minlength=len(counts))
    agreement, majority = (float(part) / max(1, counts.sum()) for part in (repeated, counts.max()))
    return MaskAudit(quality, found, image_names(data), data.classes, settings, agreement, majority)


def refuse_for_masks(**given: Any) -> None:
    """Raise InputError for settings of an audit of single labels that one of masks does not have."""
    plain = {"detector": "cross-fitted", "clean": None, "engine": "local", "workers": 1}
    for name, value in given.items():
        if value != plain[name]:
            raise InputError(
                f"an audit of masks cross-fits networks one after the other: {name}={value!r} is for single labels"
            )


def _cross_fitted(
    data: Dataset, fitting: Fitting, folds: int, folder: Path | None
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Train on all folds but one, for each; yield the rows left out and their probabilities."""
    from noisegate.runs.train import train

    if not 2 <= folds <= len(data.train):
        raise InputError(f"folds must lie between 2 and the {len(data.train)} images, got {folds}")
    places = np.random.default_rng([fitting.seed, 0xF01D]).permutation(len(data.train))
    for number, held in enumerate(np.array_split(places, folds)):
        kept = np.sort(np.setdiff1d(places, held))
        part = dataclasses.replace(data, train=data.train.take(kept), test=None)
        place = None if folder is None else folder / f"fold-{number}"
        fitted = train(
            part, fitting.method, fitting.network, fitting.recipe, fitting.seed, fitting.device,
            folder=place, evaluate_every=0,
        )  # fmt: skip
        for row in held.tolist():
            yield row, fitted.predict_proba(one(data.train.x, row)[None])[0]


def image_names(data: Dataset) -> list[str]:
    """Names of the training images: paths below the folder of the data, or row numbers."""
    if "pairs" not in data.info:
        return [str(row) for row in range(len(data.train))]
    return [os.path.relpath(image, data.info["path"]) for image, _ in data.info["pairs"]["train"]]
