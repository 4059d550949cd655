"""Exercises of notebook 05."""

from sciformer.check.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = ()
