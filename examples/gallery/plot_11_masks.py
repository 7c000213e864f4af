"""
Wrong regions in masks
======================

A mask can be wrong in a whole region. Given a model's probabilities, ``map_regions`` finds regions that
probably have another class. The model here is a stand-in: it blurs the clean mask, so that the example
needs no training.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

import noisegate as ng
from noisegate import quality

clean = replace(ng.data.load("scenes", n=6, n_test=1), validation=None)
noisy = clean.corrupt(ng.noise.MapSegments(0.5), seed=1)
worst = int((noisy.train.y != clean.train.y).sum((1, 2)).argmax())
image, given, truth = noisy.train.x[worst], noisy.train.y[worst], clean.train.y[worst]

layers = np.stack([gaussian_filter((truth == k).astype(float), 1.5) for k in range(len(clean.classes))])
probs = layers + 0.02
probs /= probs.sum(0)

# %%
# Regions come worst first, with the class they were given and the one they rather have.

regions = quality.map_regions(probs, given)
for region in regions:
    told = f"{clean.classes[region.given]}, rather {clean.classes[region.suggested]}"
    print(f"{region.pixels:4} pixels: {told}, quality {region.quality:.2f}")
print(f"quality of the whole mask: {quality.map_quality(probs, given):.2f}")

figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.8), layout="constrained")
axes[0].imshow(np.moveaxis(image, 0, -1))
axes[1].imshow(given, cmap="viridis", vmin=0)
axes[2].imshow(np.moveaxis(image, 0, -1))
for region in regions:
    top, left, bottom, right = region.box
    place = np.zeros(given.shape)
    place[top:bottom, left:right] = region.mask
    axes[2].contour(place, levels=[0.5], colors="red")
for ax, title in zip(axes, ("image", "given mask", "regions to check"), strict=True):
    ax.set_title(title)
    ax.set_axis_off()
plt.show()
