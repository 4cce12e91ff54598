"""How a model is cured: pairs, noise, trainer."""
