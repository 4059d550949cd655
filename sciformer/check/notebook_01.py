"""Exercises of notebook 01."""

from sciformer.check.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = ()
