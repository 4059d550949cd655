"""What a training will cost on a GPU, told before there is one: counted from shapes, without computing a number.

``results/predictions.json`` holds the counts for every arm of every full profile; ``tools/predict.py`` writes it. The
minutes that follow from them rest on two assumptions, which stand here and wherever they are shown.
"""

import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from sciformer.fast import BLOCK_NUMBERS
from sciformer.lab.experiments import EXPERIMENTS, experiment
from sciformer.lab.records import results_folder
from sciformer.lab.search import SEARCH, TRIALS, drawn
from sciformer.lab.settings import ImageSetting, LanguageSetting, MaskedImageSetting, NamesSetting, SequenceSetting
from sciformer.training import next_token_loss

#: Seconds that the host needs to start one operation, forward or backward. Small models wait for this, not for sums.
SECONDS_TO_START = 10e-6
#: Numbers of 4 bytes for each parameter: itself, its gradient and the two averages of AdamW.
NUMBERS_PER_PARAMETER = 4
#: Memory that GPUs come with, in 10⁹ bytes.
SIZES = (16, 24, 80)


@dataclass(frozen=True)
class Gpu:
    """A GPU, and how much of it a training is assumed to use.

    Args:
        tflops: its peak, in 10¹² operations a second, in bfloat16 where it has it and else in float32, without
            sparsity, by NVIDIA's data sheets.
        share: of the peak. On an A100, nanoGPT's character model, which is our ``shakespeare``, takes "about 3 minutes"
            for 5,000 steps by its README: 10 % of the peak. Float32 without tensor cores is easier to keep busy; the
            40 % for it are a guess.
    """

    name: str
    tflops: float
    share: float
    has_bfloat16: bool


GPUS = (Gpu("T4", 8.1, 0.4, False), Gpu("A100", 312, 0.1, True), Gpu("H100", 989, 0.1, True))


@dataclass(frozen=True)
class Prediction:
    """What was counted of one arm of an experiment.

    Args:
        flops: of one step's products, forward and backward; a multiplication and its addition are two. What is computed
            number by number, such as additive attention's tanh, and the optimizer are not among them.
        operations: that write to memory in one step, each of which a GPU has to be told to start.
        bytes_float32: most that is held at a time in a step: parameters, gradients, AdamW's averages and what is
            computed, where products are float32.
        bytes_bfloat16: the same in mixed precision.
    """

    parameters: int
    steps: int
    flops: int
    operations: int
    bytes_float32: int
    bytes_bfloat16: int

    def minutes(self, gpu: Gpu) -> float:
        """Of one training: sums at the assumed share of the peak, or the starts of operations if they last longer."""
        sums = self.flops / (gpu.share * gpu.tflops * 1e12)
        return self.steps * max(sums, self.operations * SECONDS_TO_START) / 60


class _Memory(TorchDispatchMode):
    """Counts the operations that write, and the most bytes that are held at a time by what they wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.held = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        storages = [x.untyped_storage() for x in tree_leaves(result) if isinstance(x, Tensor)]
        fresh = [storage for storage in storages if storage._cdata not in self.known]
        for storage in fresh:
            self.known.add(storage._cdata)
            weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        self.held += sum(storage.nbytes() for storage in fresh)
        self.peak = max(self.peak, self.held)
        self.operations += bool(fresh) or function._schema.is_mutable
        return result

    def _free(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.held -= size


def predict(setting: Any) -> Prediction:
    """Count one step of a setting's training: a whole batch, forward and backward.

    Dropout is left out: on a GPU torch's kernels drop on the fly, and only on a CPU would it take another path.
    """
    setting = replace(setting, **({"dropout": 0.0} if hasattr(setting, "dropout") else {}))
    # Only shapes count: the digits of the package have those of all of MNIST.
    here = replace(setting, **({"size": "small"} if hasattr(setting, "size") else {}))
    here = replace(here, **({"held_out": 0} if hasattr(setting, "held_out") else {}))
    model, loss_fn = setting.model(), training_loss(setting)
    batch = next(training_stream(here, model))
    plain, mixed = (_count(setting, model, batch, loss_fn, autocast=autocast) for autocast in (False, True))
    parameters = sum(p.numel() for p in model.parameters())
    beside = (NUMBERS_PER_PARAMETER - 1) * 4 * parameters  # gradients are among what is computed
    return Prediction(
        parameters,
        setting.train.steps,
        plain[0],
        plain[1].operations,
        plain[1].peak + beside,
        mixed[1].peak + beside,
    )


def least_bytes(setting: ImageSetting | LanguageSetting) -> int:
    """What a training holds at the least: numbers for each parameter, and in each block one for each feature.

    It is counted without memory, of models of one block and of two, since every further block is like the second. The
    score is dot product's, as some others compute a number when they are made; what scores learn is little.
    """
    plain = replace(setting, score="dot", score_options={})
    with torch.device("meta"):
        models = [replace(plain, num_layers=layers).model() for layers in (1, 2)]
    one, two = (sum(p.numel() for p in model.parameters()) for model in models)
    parameters = one + (setting.num_layers - 1) * (two - one)
    tokens = setting.length if isinstance(setting, LanguageSetting) else (28 // setting.patch_size) ** 2
    features = setting.num_layers * setting.batch_size * tokens * setting.embed_dim
    return 4 * (NUMBERS_PER_PARAMETER * parameters + features)


def training_stream(setting: Any, model: nn.Module, device: torch.device | str = "cpu") -> Iterator[tuple[Tensor, ...]]:
    """The batches that a setting's model is trained on with seed 0; those of masked images depend on the model."""
    of_model = (model,) if isinstance(setting, MaskedImageSetting) else ()
    return setting.training_batches(*of_model, 0, device)


def training_loss(setting: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss that a setting's model is trained with."""
    if isinstance(setting, MaskedImageSetting):
        return F.mse_loss
    if isinstance(setting, SequenceSetting | NamesSetting):
        return partial(next_token_loss, pad=0)
    return lambda output, target: F.cross_entropy(output.flatten(0, -2), target.flatten())


def _count(
    setting: Any,
    model: nn.Module,
    batch: tuple[Tensor, ...],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    *,
    autocast: bool,
) -> tuple[int, _Memory]:
    """Operations of arithmetic in a step, and what it does to memory."""
    # Imported here, since it imports triton, and the command line only reads what was counted.
    from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

    aten = torch.ops.aten
    fused_on_cpu = {  # which torch's counter leaves out before torch 2.15
        aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(*shapes[:3]),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: (
            lambda *shapes, **_: sdpa_backward_flop_count(*shapes[:4])
        ),
    }
    # These two look at their inputs on a CPU, so they compute. They are small.
    computes = isinstance(setting, MaskedImageSetting | SequenceSetting | NamesSetting)
    mode: AbstractContextManager[Any] = nullcontext() if computes else FakeTensorMode()
    with mode as fake:
        if fake is not None:
            model, batch = setting.model(), tree_map_only(Tensor, fake.from_tensor, batch)
        model.zero_grad()
        *inputs, target = batch
        counter, memory = FlopCounterMode(display=False, custom_mapping=fused_on_cpu), _Memory()
        with ExitStack() as stack:
            stack.enter_context(counter)
            stack.enter_context(memory)
            # As on a GPU, with whose larger blocks, quick tanh, and tokens that nobody looks at.
            stack.enter_context(mock.patch.dict(BLOCK_NUMBERS, cpu=BLOCK_NUMBERS["cuda"]))
            stack.enter_context(mock.patch("sciformer.fast.additive.SLOW_TANH", frozenset()))
            stack.enter_context(mock.patch("sciformer.models.language.check_tokens"))
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = loss_fn(model(*inputs), target)
            loss.backward()
        return counter.get_total_flops(), memory


def predict_all(on_arm: Callable[[str], None] = lambda name: None) -> dict[str, dict[str, Prediction]]:
    """Every arm of every experiment with a full profile, by name; the only arm of an experiment is named "".

    The arms of "search" are its trials, by number.

    Args:
        on_arm: told the name of each arm before it is counted.
    """
    counted: dict[str, dict[str, Prediction]] = {}
    for name, each in EXPERIMENTS.items():
        if "full" in each.settings:
            for arm, setting in each.arms("full").items():
                on_arm(f"{name}, {arm}" if arm else name)
                counted.setdefault(name, {})[arm or ""] = predict(setting)
    on_arm("search")
    counted["search"] = {str(n): predict(one) for n, one in enumerate(drawn(SEARCH["full"], TRIALS))}
    return counted


def as_json(predictions: dict[str, dict[str, Prediction]]) -> str:
    """The file's text."""
    return json.dumps({n: {arm: asdict(p) for arm, p in arms.items()} for n, arms in predictions.items()}, indent=1)


@cache
def kept_predictions() -> dict[str, dict[str, Prediction]]:
    """What ``results/predictions.json`` holds."""
    content = json.loads((results_folder() / "predictions.json").read_text(encoding="utf-8"))
    return {name: {arm: Prediction(**counts) for arm, counts in arms.items()} for name, arms in content.items()}


def trainings(name: str) -> int:
    """How often each arm is trained: for each seed once or as often as it has trials; a trial of the search once."""
    return 1 if name == "search" else experiment(name).seeds * experiment(name).trials


def minutes_to_record(name: str, gpu: Gpu) -> float:
    """Of an experiment's full profile: every seed of every arm, one after the other; of the search at most.

    A search may give up a trial on its way, which is not predicted.
    """
    return trainings(name) * sum(arm.minutes(gpu) for arm in kept_predictions()[name].values())


def duration(minutes: float) -> str:
    """Minutes or hours, to read."""
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def fits(name: str, *, has_bfloat16: bool) -> int:
    """The smallest of the SIZES that holds every arm of an experiment, in 10⁹ bytes.

    Raises:
        ValueError: if none does.
    """
    kind = "bytes_bfloat16" if has_bfloat16 else "bytes_float32"
    peak = max(getattr(arm, kind) for arm in kept_predictions()[name].values())
    for size in SIZES:
        if peak < size * 1e9:
            return size
    raise ValueError(f"{name} needs {peak / 1e9:.0f} GB")


#: What :func:`counted` says of an experiment.
COUNTED = ("parameters", "TFLOP a step", "peak memory", "fits in")


def counted(name: str) -> tuple[str, str, str, str]:
    """What was counted of an experiment's arms, to read, in the order of ``COUNTED``."""
    arms = kept_predictions()[name].values()
    mixed, plain = (max(getattr(arm, f"bytes_{kind}") for arm in arms) / 1e9 for kind in ("bfloat16", "float32"))
    return (
        spread([arm.parameters for arm in arms], ",.0f"),
        spread([arm.flops / 1e12 for arm in arms], ".2g"),
        f"{mixed:.2g} GB, in float32 {plain:.2g} GB",
        " and ".join(dict.fromkeys(f"{fits(name, has_bfloat16=kind)} GB" for kind in (True, False))),
    )


def spread(values: Sequence[float], form: str) -> str:
    """The least and the largest of some numbers, or the only one."""
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least} to {most}"
