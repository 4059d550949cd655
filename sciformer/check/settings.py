"""What a checker tells, for instructors to change: ``check.settings.tell = "symptom"``."""

from typing import Literal

#: What is told of a wrong answer. "verdict": only that it is not right; "symptom": what is wrong with the result;
#: "cause": the mistake as well; "ladder": the symptom at the first wrong run, the cause from the second on.
tell: Literal["verdict", "symptom", "cause", "ladder"] = "ladder"
