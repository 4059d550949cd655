"""A model, part by part, as the page builds it again: the parts' own names, their sizes, and their weights.

Only what the page computes exactly as the package does is described. A subclass may compute anything, so that it is
refused like any other module that the page does not know.
"""

from collections.abc import Callable
from numbers import Real
from typing import Any

from torch import nn

from sciformer.attention import MultiHeadAttention
from sciformer.blocks import FeedForward, SquaredReLU, TokenShift, TransformerBlock
from sciformer.functional import InputError, Well, unpack_partial
from sciformer.models import CharTransformer, Classifier, ImageToSequence, ImageTransformer
from sciformer.positions import LearnedPositions, NoPositions, SinusoidalPositions
from sciformer.scores import (
    AdditiveScore,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    NormalizedScore,
    RotaryScore,
    SeparableAdditiveScore,
)
from sciformer.teach.export.packing import Packed

#: The smallest step of float32, which torch's RMS norm adds where no other number is given.
EPSILON = 2.0**-23

Description = dict[str, Any]


class Describer:
    """Describes modules and packs their weights.

    Args:
        packed: where the weights go.
    """

    def __init__(self, packed: Packed):
        self.packed = packed

    def __call__(self, module: nn.Module | None, path: str) -> Description | None:
        """The description of a module; of None it is None.

        Args:
            path: its name in the model, for the message.

        Raises:
            InputError: if the page does not know the module, or not with these options.
        """
        if module is None:
            return None
        if type(module) not in PARTS:
            raise InputError(
                f"{path} is a {type(module).__name__}, which the page cannot compute: it knows the package's own "
                "scores, positions, norms and activations. A score of your own stays in the notebook, where "
                "plotting.heads and capstone.report show it"
            )
        return {"kind": type(module).__name__, **PARTS[type(module)](self, module, path)}

    def parts(self, module: nn.Module, path: str, *names: str) -> Description:
        """The descriptions of some of a module's parts, by name."""
        return {name: self(getattr(module, name), f"{path}.{name}") for name in names}

    def weights(self, module: nn.Module, path: str, *names: str) -> Description:
        """Some of a module's tensors, by name; None where it has none."""
        tensors = {name: getattr(module, name) for name in names}
        return {n: None if t is None else self.packed.add(t, f"{path}.{n}") for n, t in tensors.items()}


def _linear(describe: Describer, module: nn.Module, path: str) -> Description:
    return describe.weights(module, path, "weight", "bias")


def _layer_norm(describe: Describer, module: Any, path: str) -> Description:
    return {"eps": module.eps, **describe.weights(module, path, "weight", "bias")}


def _rms_norm(describe: Describer, module: Any, path: str) -> Description:
    return {"eps": EPSILON if module.eps is None else module.eps, **describe.weights(module, path, "weight")}


def _gelu(describe: Describer, module: Any, path: str) -> Description:
    return {"approximate": module.approximate}


def _nothing(describe: Describer, module: nn.Module, path: str) -> Description:
    return {}


def _dot(describe: Describer, module: Any, path: str) -> Description:
    return {"scale": module.scale}


def _distance(describe: Describer, module: Any, path: str) -> Description:
    slopes = module.slopes.reshape(module.num_heads, -1)  # (H, 1), or (H, A) with a slope for each side
    return {"width": module.width, "strength": describe.packed.add(slopes, f"{path}.strength")}


def _additive(describe: Describer, module: nn.Module, path: str) -> Description:
    return describe.weights(module, path, "weight")


def _well(describe: Describer, module: Any, path: str) -> Description:
    formula, fixed = unpack_partial(module.well)
    if not isinstance(formula, Well):
        raise InputError(f"{path} has a well of its own, {module.well!r}; the page knows the package's four")
    for name, value in fixed.items():
        if name not in ("alpha", "weight", "eps") or not isinstance(value, Real):
            raise InputError(f"{path} fixes {name} to {value!r}; the page knows alpha, weight and eps as numbers")
    learned = describe.weights(module, path, "log_alpha", "importance")
    return {"well": formula.name, "form": module.form, **{k: float(v) for k, v in fixed.items()}, **learned}


def _wrapped(describe: Describer, module: nn.Module, path: str) -> Description:
    return describe.parts(module, path, "score")


def _attention(describe: Describer, module: Any, path: str) -> Description:
    names = ("q_proj", "k_proj", "v_proj", "out_proj", "score")
    return {"num_heads": module.num_heads, **describe.parts(module, path, *names)}


def _block(describe: Describer, module: Any, path: str) -> Description:
    names = (
        "attention_norm",
        "attention",
        "feed_forward_norm",
        "feed_forward",
        "attention_shift",
        "feed_forward_shift",
    )
    return {"norm_first": module.norm_first, **describe.parts(module, path, *names)}


def _feed_forward(describe: Describer, module: nn.Module, path: str) -> Description:
    return describe.parts(module, path, "up", "activation", "down")


def _to_sequence(describe: Describer, module: Any, path: str) -> Description:
    weight = module.projection.weight.flatten(1)  # (E, C * size * size)
    bias = module.projection.bias
    projection = {
        "kind": "Linear",
        "weight": describe.packed.add(weight, f"{path}.projection.weight"),
        "bias": describe.packed.add(bias, f"{path}.projection.bias"),
    }
    return {"image_shape": list(module.image_shape), "patch_size": module.patch_size[0], "projection": projection}


def _classifier(describe: Describer, module: nn.Module, path: str) -> Description:
    return describe.parts(module, path, "norm", "queries", "linear")


def _blocks(describe: Describer, module: Any, path: str) -> Description:
    return {"blocks": [describe(block, f"{path}.blocks.{n}") for n, block in enumerate(module.blocks)]}


def _image_transformer(describe: Describer, module: nn.Module, path: str) -> Description:
    ends = describe.parts(module, path, "to_sequence", "positions", "classifier")
    return ends | _blocks(describe, module, path)


def _char_transformer(describe: Describer, module: Any, path: str) -> Description:
    embedding = describe.packed.add(module.embedding.weight, f"{path}.embedding.weight")
    ends = describe.parts(module, path, "positions", "norm", "read_out")
    return {"max_length": module.max_length, "embedding": embedding, **ends, **_blocks(describe, module, path)}


def _table(describe: Describer, module: nn.Module, path: str) -> Description:
    return describe.weights(module, path, "table")


#: How each module is described, by its exact type.
PARTS: dict[type[nn.Module], Callable[[Describer, Any, str], Description]] = {
    ImageTransformer: _image_transformer,
    CharTransformer: _char_transformer,
    ImageToSequence: _to_sequence,
    Classifier: _classifier,
    TransformerBlock: _block,
    MultiHeadAttention: _attention,
    FeedForward: _feed_forward,
    TokenShift: _additive,
    LearnedPositions: _table,
    SinusoidalPositions: _nothing,
    NoPositions: _nothing,
    DotProductScore: _dot,
    DistanceBiasedScore: _distance,
    AdditiveScore: _additive,
    SeparableAdditiveScore: _additive,
    EnergyWellScore: _well,
    RotaryScore: _wrapped,
    NormalizedScore: _wrapped,
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.Identity: _nothing,
    nn.GELU: _gelu,
    nn.ReLU: _nothing,
    SquaredReLU: _nothing,
}
