"""Training: the recipe, the job a method works on, the trainer that owns the loop, checkpoints."""

from noisegate.training.recipe import Recipe, auto_recipe

__all__ = ["Recipe", "auto_recipe"]
