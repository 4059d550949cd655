"""Whole models, which take scores and positions as recipes and pass options on to their blocks; and decoding."""

from sciformer.models.attention_only import AttentionOnly
from sciformer.models.decoding import sample
from sciformer.models.encoder_decoder import ImageToText, Transformer
from sciformer.models.image import Classifier, ImageToSequence, ImageTransformer
from sciformer.models.language import CharTransformer
from sciformer.models.masked_image import CorruptedImageModel, MaskedImageModel, corrupted, random_visible

__all__ = [
    "AttentionOnly",
    "CharTransformer",
    "Classifier",
    "CorruptedImageModel",
    "ImageToSequence",
    "ImageToText",
    "ImageTransformer",
    "MaskedImageModel",
    "Transformer",
    "corrupted",
    "random_visible",
    "sample",
]
