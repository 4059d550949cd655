"""Exercises of notebook 06."""

from sciformer.check.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = ()
