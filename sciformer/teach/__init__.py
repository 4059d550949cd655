"""What notebooks show and prove with: pictures, explorers, verdicts, the property suite and the capstone."""

from sciformer.teach.explorers import Squares, Switches, explore

__all__ = ["Squares", "Switches", "explore"]
