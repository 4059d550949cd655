"""Exercises of notebook 03."""

from sciformer.check.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = ()
