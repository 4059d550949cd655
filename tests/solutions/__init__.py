"""Right answers to the exercises, a file for each notebook.

The function with the exercise's own name is the one that stands folded away in the notebook, to the letter. Names with
a suffix after two underscores are the same answer, written in other ways.
"""
