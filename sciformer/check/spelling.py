"""Formulas of the notebooks in plain characters: what a terminal prints is not typeset."""

import re

SIGNS = {"alpha": "α", "lambda": "λ", "cdot": "·", "odot": "⊙", "sum": "Σ", "log": "log"}


def spelled(text: str) -> str:
    r"""A text whose formulas are written in plain characters: ``$1/\sqrt d$`` becomes ``1/√d``."""
    return re.sub(r"\$([^$]+)\$", lambda formula: _spelled(formula[1]), text)


def _spelled(formula: str) -> str:
    formula = formula.replace(r"^\top", "ᵀ").replace(r"\,", " ")
    formula = re.sub(r"\\text\{(\w+)\}", r"\1", formula)
    formula = re.sub(r"\\sqrt\s*(\w)", r"√\1", formula)
    formula = re.sub(r"\\sqrt\{([^{}]*)\}", r"√(\1)", formula)
    formula = re.sub(r"\\([a-z]+)", lambda sign: SIGNS.get(sign[1], sign[1]), formula)
    formula = re.sub(r"_\{(\w+)\}", r"_\1", formula)
    return re.sub(r"\^\{([^{}]*)\}", r"^(\1)", formula.replace("^2", "²"))
