"""
What the temperature of heteroscedastic logits does
===================================================

Het models a label as the largest of noisy logits and puts softmax at a temperature in the place of that
choice. Two classes have a closed form to compare with: at temperature 0 it is probit.
"""

import matplotlib.pyplot as plt
import torch

import noisegate as ng

mean = torch.linspace(-4, 4, 81)
deviation = 1.5
scale = torch.full_like(mean, float(torch.log(torch.expm1(torch.tensor(deviation - 1e-3)))))
outputs = torch.stack([mean, scale], dim=1)  # two classes: one mean, one scale before softplus
probit = torch.distributions.Normal(0.0, 1.0).cdf(mean / deviation)

# %%
# A low temperature is close to probit; a high one flattens everything, and the network has to make up for
# it with larger means.

figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
ax.plot(mean, probit, color="black", linestyle="--", label="temperature 0: probit")
for temperature in (0.1, 0.5, 1.0, 3.0):
    objective = ng.Heteroscedastic(2, temperature=temperature).eval()
    p = objective.probs(outputs)[:, 1]
    ax.plot(mean, p, label=f"temperature {temperature:g}")
    print(f"temperature {temperature:g}: largest difference to probit {float((p - probit).abs().max()):.3f}")
ax.set(xlabel="mean logit", ylabel="probability of class 1", title="deviation 1.5")
ax.legend(frameon=False, fontsize=8)
plt.show()
