"""Whole models. Every one takes the score and the positions as recipes."""

from sciformer.models.image import Classifier, ImageToSequence, ImageTransformer

__all__ = ["Classifier", "ImageToSequence", "ImageTransformer"]
