"""sciformer: attention built from a weighted sum up.

The mechanisms, blocks and models stand here by name. Everything else is a module of its own that is imported when it is
first used, so that ``import sciformer`` stays light: ``data``, ``training``, ``metrics``, ``plotting``, ``explore``,
``course``, ``experiments``, ``records``, ``properties``, ``capstone``, ``trained``, and the function ``export_html``.
"""

import sys

# `python -m sciformer grade` must import nothing from the current folder, where the submissions may be.
if sys.argv[:1] == ["-m"] and "grade" in sys.argv and not sys.flags.safe_path:
    del sys.path[0]

import importlib
import os
import signal
from pathlib import Path
from typing import Any

# The imports of a command take a second; Ctrl-C during them ends it in one line. __main__ makes it an exception again.
if (
    (sys.argv[:1] == ["-m"] or Path(sys.argv[0] if sys.argv else "").stem == "sciformer")
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler  # which it is not in a shell's background
):
    signal.signal(signal.SIGINT, lambda *_: (os.write(2, b"sciformer: interrupted\n"), os._exit(130)))

if "torch" not in sys.modules:  # which reads it when it is loaded: threads that wait leave their core to others
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from sciformer.attention import MultiHeadAttention
from sciformer.blocks import DecoderBlock, FeedForward, SquaredReLU, TokenShift, TransformerBlock
from sciformer.functional import (
    additive_scores,
    attend,
    causal_mask,
    distance_biased_scores,
    dot_product_scores,
    energy_well_scores,
    gaussian_well,
    inverse_square_well,
    lorentzian_well,
    masked_softmax,
    masked_standardize,
    naive_attention,
    padding_mask,
    pairwise_distances,
    rotate,
    separable_additive_scores,
    softmax_exponential_well,
    window_mask,
)
from sciformer.models import (
    AttentionOnly,
    CharTransformer,
    Classifier,
    CorruptedImageModel,
    ImageToSequence,
    ImageToText,
    ImageTransformer,
    MaskedImageModel,
    Transformer,
    corrupted,
    random_visible,
    sample,
)
from sciformer.positions import (
    POSITIONS,
    LearnedPositions,
    NoPositions,
    SinusoidalGridPositions,
    SinusoidalPositions,
)
from sciformer.scores import (
    SCORES,
    AdditiveScore,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    KeyBiasScore,
    NormalizedScore,
    PreparedScore,
    RotaryScore,
    Score,
    SeparableAdditiveScore,
    StandardizedScore,
    TrainableMaskScore,
    WindowedScore,
    WrappedScore,
)

__version__ = "0.2.0"

__all__ = [
    "POSITIONS",
    "SCORES",
    "AdditiveScore",
    "AttentionOnly",
    "CharTransformer",
    "Classifier",
    "CorruptedImageModel",
    "DecoderBlock",
    "DistanceBiasedScore",
    "DotProductScore",
    "EnergyWellScore",
    "FeedForward",
    "ImageToSequence",
    "ImageToText",
    "ImageTransformer",
    "KeyBiasScore",
    "LearnedPositions",
    "MaskedImageModel",
    "MultiHeadAttention",
    "NoPositions",
    "NormalizedScore",
    "PreparedScore",
    "RotaryScore",
    "Score",
    "SeparableAdditiveScore",
    "SinusoidalGridPositions",
    "SinusoidalPositions",
    "SquaredReLU",
    "StandardizedScore",
    "TokenShift",
    "TrainableMaskScore",
    "Transformer",
    "TransformerBlock",
    "WindowedScore",
    "WrappedScore",
    "additive_scores",
    "attend",
    "causal_mask",
    "corrupted",
    "distance_biased_scores",
    "dot_product_scores",
    "energy_well_scores",
    "gaussian_well",
    "inverse_square_well",
    "lorentzian_well",
    "masked_softmax",
    "masked_standardize",
    "naive_attention",
    "padding_mask",
    "pairwise_distances",
    "random_visible",
    "rotate",
    "sample",
    "separable_additive_scores",
    "softmax_exponential_well",
    "window_mask",
]

#: Where the modules live that are asked of the package by name.
_MODULES = {
    "capstone": "teach.capstone",
    "check": "check",
    "course": "teach.course",
    "data": "data",
    "experiments": "lab.experiments",
    "explore": "teach.explorers",
    "metrics": "lab.metrics",
    "plotting": "teach.plotting",
    "properties": "teach.properties",
    "records": "lab.records",
    "trained": "teach.trained",
    "training": "training",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"sciformer.{_MODULES[name]}")
    if name == "export_html":  # a function, but of a module that is imported when it is first used, like those above
        return importlib.import_module("sciformer.teach.export").export_html
    raise AttributeError(f"module 'sciformer' has no attribute {name!r}")
