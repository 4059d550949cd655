"""Arms that experiments on images and on text have in common."""

from dataclasses import replace
from typing import Any

from sciformer.scores import SCORES, WELLS, WRAPPERS


def well_arms(plain: Any) -> dict[str, Any]:
    """The same model with each well in its two forms for a score; and with weights that are all equal, for a floor."""
    wells = {
        f"{well}, {form}": replace(plain, score=f"{well}_well", score_options={"form": form})
        for form in ("gradient", "field")
        for well in WELLS
    }
    return {"dot": plain, **wells, "uniform": replace(plain, score_options={"scale": 0.0})}


def every_score(setting: Any) -> dict[str, Any]:
    """The same model with each score as it comes: nothing else changes, and nothing is tuned for one of them."""
    return {score: replace(setting, score=score, score_options={}) for score in SCORES}


def recipe_arms(plain: Any, length: int, *, is_causal: bool) -> dict[str, Any]:
    """Plain attention, and with each change of its numbers, its mask or its normaliser; all train at the same rates.

    Args:
        length: of the sequence, in tokens: how large a trainable mask is.
        is_causal: whether a trainable mask hides later tokens.
    """
    mask = {"max_length": length, "is_causal": is_causal}
    changed = {
        name: replace(plain, score=name, score_options=mask if name.endswith("mask") else {}) for name in WRAPPERS
    }
    return {"dot": plain, **changed}
