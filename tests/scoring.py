"""What the tests of scores and of fast paths share: recipes, long inputs, and the largest tensor that a path makes."""

from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sciformer import (
    SCORES,
    DistanceBiasedScore,
    EnergyWellScore,
    KeyBiasScore,
    NormalizedScore,
    RotaryScore,
    StandardizedScore,
    TrainableMaskScore,
)
from sciformer.fast import attention
from sciformer.teach.properties import L, random_qkv

RECIPES = {
    **SCORES,
    "distance to each side": partial(DistanceBiasedScore, each_side=True),
    "distance on a grid": partial(DistanceBiasedScore, width=3),
    "distance to each side on a grid": partial(DistanceBiasedScore, each_side=True, width=3),
    **{f"normalised {name}": partial(NormalizedScore, score=recipe) for name, recipe in SCORES.items()},
    **{f"rotary {name}": partial(RotaryScore, score=recipe) for name, recipe in SCORES.items()},
    "gaussian field": partial(EnergyWellScore, well="gaussian", form="field"),
    "inverse square field": partial(EnergyWellScore, well="inverse_square", form="field"),
    "softmax-exponential field": partial(EnergyWellScore, well="softmax_exponential", form="field"),
    "lorentzian field": partial(EnergyWellScore, well="lorentzian", form="field"),
}

#: What changes another score's numbers, its mask or its normaliser. A trainable mask is as long as what properties try.
WRAPPERS = {
    "standardised": StandardizedScore,
    "key bias": KeyBiasScore,
    "additive mask": partial(TrainableMaskScore, max_length=L, is_causal=False),
    "multiplicative mask": partial(TrainableMaskScore, max_length=L, is_causal=False, form="multiplicative"),
    "causal additive mask": partial(TrainableMaskScore, max_length=L),
    "causal multiplicative mask": partial(TrainableMaskScore, max_length=L, form="multiplicative"),
}
#: Each of them around a score that knows no positions and one that looks at the mask; and one inside another.
WRAPPED = {
    **{
        f"{wrapper} of {name}": partial(recipe, score=SCORES[name])
        for wrapper, recipe in WRAPPERS.items()
        for name in ("dot", "softmax_exponential_well")
    },
    "rotary, standardised": partial(RotaryScore, score=WRAPPERS["standardised"]),
    "rotary, causal additive mask": partial(RotaryScore, score=WRAPPERS["causal additive mask"]),
    "normalised, key bias": partial(NormalizedScore, score=WRAPPERS["key bias"]),
    "standardised causal mask": partial(StandardizedScore, score=WRAPPERS["causal additive mask"]),
    "multiplied causal mask": partial(WRAPPERS["multiplicative mask"], score=WRAPPERS["causal additive mask"]),
    "key bias of standardised distance": partial(
        KeyBiasScore, score=partial(StandardizedScore, score=DistanceBiasedScore)
    ),
}


def long_inputs(length, dtype):
    query, key, value = random_qkv(1, 2, length, length, 16, dtype=dtype)
    return query[:, :, -64:], key, value


class LargestTensor(TorchDispatchMode):
    """Counts the numbers of the largest tensor that any operation makes, going forth and back."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        made = [x for x in (output if isinstance(output, (tuple, list)) else [output]) if isinstance(x, torch.Tensor)]
        # What is only expanded takes the memory of what it repeats.
        self.numbers = max([self.numbers, *(x.untyped_storage().nbytes() // x.element_size() for x in made)])
        return output


def largest_made(score, inputs, **options):
    with LargestTensor() as largest:
        output, _ = attention(score, *inputs, **options)
        torch.autograd.grad((output**2).sum(), [*inputs, *score.parameters()], allow_unused=True)
    return largest.numbers
