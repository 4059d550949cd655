"""Whole models. Every one takes the score and the positions as recipes."""

from sciformer.models.encoder_decoder import Transformer
from sciformer.models.image import Classifier, ImageToSequence, ImageTransformer
from sciformer.models.language import CharTransformer, sample
from sciformer.models.masked_image import MaskedImageModel, random_visible

__all__ = [
    "CharTransformer",
    "Classifier",
    "ImageToSequence",
    "ImageTransformer",
    "MaskedImageModel",
    "Transformer",
    "random_visible",
    "sample",
]
