"""Writes a messy table to try noisegate on: the catalogue of a shop, a fifth of it in the wrong category.

    python examples/shop.py [FOLDER]

`shop.csv` has what such tables have: titles, prices with gaps, dates, numbers that name the rows, and
categories that tired people clicked, 20 % of them wrong. `shop-test.csv` has other products with the
right categories, `shop-new.csv` the same ones without any, and `shop-truth.csv` the right category of
every row of `shop.csv`: to count with, never to train on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

GOODS = {
    "books": ("novel", "cookbook", "atlas", "notebook", "diary", "dictionary", "comic", "biography"),
    "games": ("puzzle", "card game", "dice set", "board game", "chess set", "quiz", "figure", "comic puzzle"),
    "garden": ("rake", "hose", "planter", "seed set", "watering can", "wheelbarrow", "gloves", "shears"),
    "kitchen": ("knife set", "pan", "kettle", "cutting board", "scale", "dish set", "whisk", "shears"),
    "tools": ("drill", "hammer", "wrench set", "tape measure", "work gloves", "saw", "level", "knife"),
}
ADJECTIVES = ("large", "small", "classic", "premium", "handy", "steel", "wooden", "foldable", "gift", "new")
PRICES = {"books": 15, "games": 25, "garden": 30, "kitchen": 35, "tools": 55}
WEIGHTS = {"books": 0.5, "games": 0.9, "garden": 2.5, "kitchen": 1.2, "tools": 2.0}
#: Where a tired clerk clicks: the neighbour in the menu.
NEXT = {"books": "games", "games": "books", "garden": "kitchen", "kitchen": "tools", "tools": "garden"}


def catalogue(n: int, seed: int) -> pd.DataFrame:
    """Products with their right category."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        category = str(rng.choice(list(GOODS)))
        words = [str(rng.choice(ADJECTIVES)), str(rng.choice(GOODS[category]))]
        if rng.random() < 0.5:
            words.append(f"{rng.integers(2, 60)} {rng.choice(['cm', 'pieces', 'parts'])}")
        day = pd.Timestamp("2024-01-01") + pd.Timedelta(days=int(rng.integers(900)))
        rows.append(
            {
                "sku": f"A{seed}{number:05d}",
                "title": " ".join(words).capitalize(),
                "price": round(float(PRICES[category] * rng.lognormal(0, 0.5)), 2),
                "weight_kg": round(float(WEIGHTS[category] * rng.lognormal(0, 0.6)), 2),
                "added": day.strftime("%d/%m/%Y"),
                "in_stock": str(rng.choice(["yes", "no"], p=[0.8, 0.2])),
                "category": category,
            }
        )
    table = pd.DataFrame(rows)
    for column, share in (("price", 0.05), ("weight_kg", 0.3)):
        table.loc[rng.random(n) < share, column] = np.nan
    return table


def mislabel(categories: pd.Series, rate: float, seed: int) -> pd.Series:
    """Two thirds of the mistakes go to the neighbour in the menu, the others anywhere else."""
    rng = np.random.default_rng(seed)
    given = []
    for right in categories:
        others = [name for name in GOODS if name != right]
        wrong = NEXT[right] if rng.random() < 2 / 3 else str(rng.choice(others))
        given.append(wrong if rng.random() < rate else right)
    return pd.Series(given, index=categories.index)


def main(folder: str = ".", n: int = 600) -> None:
    """Write the four files."""
    place = Path(folder)
    table = catalogue(n, seed=1)
    table[["sku", "category"]].to_csv(place / "shop-truth.csv", index=False)
    table["category"] = mislabel(table["category"], 0.2, seed=2)
    table.to_csv(place / "shop.csv", index=False)
    test = catalogue(n // 2, seed=3)
    test.to_csv(place / "shop-test.csv", index=False)
    test.drop(columns="category").to_csv(place / "shop-new.csv", index=False)


if __name__ == "__main__":
    main(*sys.argv[1:2])
