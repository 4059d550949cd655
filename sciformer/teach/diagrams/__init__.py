"""Pictures of how the machine is put together, drawn from the notebooks' own tensors."""

from sciformer.teach.diagrams.sheet import FILLS, Sheet

__all__ = ["FILLS", "Sheet"]
