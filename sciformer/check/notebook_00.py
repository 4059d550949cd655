"""Exercises of notebook 00."""

from sciformer.check.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = ()
