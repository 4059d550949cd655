"""Pictures of how the machine is put together, drawn from the notebooks' own tensors."""

from sciformer.teach.diagrams.sheet import FILLS, Sheet
from sciformer.teach.diagrams.vision import head_windows, image_pipeline

__all__ = ["FILLS", "Sheet", "head_windows", "image_pipeline"]
