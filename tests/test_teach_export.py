"""A page computes what torch computes, and what it cannot compute it refuses."""

import copy
import json
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from pages import LOGITS_OF_IMAGES, LOGITS_OF_TEXTS, NODE, data_of, in_node
from torch import nn

import sciformer
from sciformer import (
    SCORES,
    CharTransformer,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    ImageTransformer,
    NoPositions,
    NormalizedScore,
    RotaryScore,
    SinusoidalPositions,
    SquaredReLU,
    Transformer,
    cli,
    data,
    gaussian_well,
    inverse_square_well,
)
from sciformer.data import Vocabulary
from sciformer.functional import InputError
from sciformer.lab.experiments import MNIST_IMAGE_TRANSFORMER, MNIST_PIXELS, SHAKESPEARE
from sciformer.lab.runs import load_run
from sciformer.teach.export import export_html
from sciformer.teach.export.packing import SMALL

needs_node = pytest.mark.skipif(not NODE, reason="needs node on the path")


def stirred(model, seed=0):
    """A model of which no parameter is at its start any more, so that none can be forgotten unseen."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tiny_image_model(**options):
    torch.manual_seed(0)
    return stirred(ImageTransformer(14, 7, 1, 10, embed_dim=12, num_heads=3, num_layers=2, **options))


def tiny_text_model(**options):
    torch.manual_seed(0)
    return stirred(CharTransformer(65, 11, embed_dim=12, num_heads=3, num_layers=2, **options))


def page_of(model, tmp_path, dtype="float32", **options):
    return export_html(model, tmp_path / "page.html", dtype=dtype, **options).read_text(encoding="utf-8")


@torch.no_grad()
def assert_page_agrees(model, tmp_path, *, reference=None, atol=1e-4, count=3, **options):
    """The page's logits of some inputs are those of torch."""
    page, reference = page_of(model, tmp_path, **options), reference or model
    if isinstance(model, ImageTransformer):
        side = model.to_sequence.image_shape[-1]
        images = torch.nn.functional.avg_pool2d(data.mnist("test")[0][:count], 28 // side)
        found, wanted = in_node(page, LOGITS_OF_IMAGES, images.flatten(1).tolist()), reference(images)
    else:
        texts = data.shakespeare("val")[0][: count * model.max_length].view(count, -1)
        found, wanted = in_node(page, LOGITS_OF_TEXTS, texts.tolist()), reference(texts).flatten(1)
    torch.testing.assert_close(torch.tensor(found), wanted, atol=atol, rtol=1e-5)


@needs_node
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("make", [tiny_image_model, tiny_text_model])
def test_every_score_is_computed_as_torch_does(make, score, tmp_path):
    assert_page_agrees(make(score=SCORES[score]), tmp_path)


FORMS = [partial(SCORES[name], form="field") for name in SCORES if name.endswith("well")]
FIXED_WELLS = [
    partial(EnergyWellScore, well=partial(gaussian_well, alpha=0.7)),
    partial(EnergyWellScore, well=partial(inverse_square_well, eps=0.3)),
    partial(EnergyWellScore, well=partial(inverse_square_well, weight=2.0), form="field"),
]
WRAPPED = [
    RotaryScore,
    NormalizedScore,
    partial(NormalizedScore, score=partial(RotaryScore, score=DistanceBiasedScore)),
    partial(RotaryScore, score=SCORES["lorentzian_well"]),
    partial(DotProductScore, scale=0.3),
    partial(DistanceBiasedScore, each_side=True, start=[[0.1, 0.7]]),
    partial(DistanceBiasedScore, each_side=True, width=2, start=[[0.1, 0.7, 0.3, 0.5]]),
    partial(DistanceBiasedScore, width=2, start="geometric"),
]


@needs_node
@pytest.mark.parametrize("score", [*FORMS, *FIXED_WELLS, *WRAPPED])
def test_scores_with_options_are_computed_as_torch_does(score, tmp_path):
    assert_page_agrees(tiny_image_model(score=score), tmp_path)
    assert_page_agrees(tiny_text_model(score=score), tmp_path)


BLOCKS = {
    "post-norm, ReLU": {"norm_first": False, "activation": nn.ReLU},
    "squared ReLU, RMS norm": {"activation": SquaredReLU, "norm": nn.RMSNorm},
    "RMS norm with nothing to learn": {"norm": partial(nn.RMSNorm, elementwise_affine=False)},
    "tanh GELU": {"activation": partial(nn.GELU, approximate="tanh")},
    "sinusoidal": {"positions": SinusoidalPositions},
    "none": {"positions": NoPositions},
    "dropout": {"dropout": 0.3},
    "no bias": {"bias": False},
    "bias": {"bias": True},
}


@needs_node
@pytest.mark.parametrize("options", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("make", [tiny_image_model, tiny_text_model])
def test_blocks_are_computed_as_torch_does(make, options, tmp_path):
    assert_page_agrees(make(**options), tmp_path)


@needs_node
def test_queries_read_out_and_untied_weights_and_token_shifts(tmp_path):
    assert_page_agrees(tiny_image_model(num_queries=5), tmp_path)
    assert_page_agrees(tiny_text_model(tie_weights=False, token_shift=3), tmp_path)


@needs_node
@pytest.mark.parametrize("arm", SHAKESPEARE["quick"])
def test_every_recorded_character_model_can_be_a_page(arm, tmp_path):
    setting = replace(SHAKESPEARE["quick"][arm], embed_dim=24, length=16)
    assert_page_agrees(stirred(setting.model()), tmp_path)


@needs_node
@pytest.mark.parametrize("arm", MNIST_PIXELS["quick"])
def test_every_recorded_pixel_model_can_be_a_page(arm, tmp_path):
    """The published one has no projection behind its heads and no norm before its classifier."""
    setting = replace(MNIST_PIXELS["quick"][arm], embed_dim=12, num_layers=1, pooling=4)
    if arm == "distance":
        setting = replace(setting, score_options=setting.score_options | {"width": 7})
    setting = setting if arm == "published" else replace(setting, num_heads=4)
    assert_page_agrees(stirred(setting.model()), tmp_path)


@needs_node
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_rounded_weights_are_those_of_torch(dtype, tmp_path):
    """On 100 digits and 20 prompts; small tensors are not rounded at all."""
    for model in (MNIST_IMAGE_TRANSFORMER["quick"].model(), SHAKESPEARE["quick"]["architecture"].model()):
        count = 100 if isinstance(model, ImageTransformer) else 20
        assert_page_agrees(stirred(model), tmp_path, dtype=dtype, reference=rounded(model, dtype), count=count)


def rounded(model, dtype):
    """A copy whose large matrices are rounded as the page's are."""
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in copied.parameters():
            if parameter.dim() < 2 or parameter.numel() <= SMALL:
                continue
            rows = parameter.flatten(1)
            if dtype == "float16":
                parameter.copy_(parameter.half().float())
            if dtype == "int8":
                scales = rows.abs().amax(dim=1, keepdim=True) / 127
                parameter.copy_(((rows / scales).round() * scales).view_as(parameter))
    return copied


@needs_node
@pytest.mark.parametrize("score", ["dot", "distance", "softmax_exponential_well"])
def test_greedy_text_is_that_of_torch_beyond_the_context_window(score, tmp_path):
    """With the cache and without it, over several windows, in which the older half is forgotten."""
    model = tiny_text_model(score=partial(RotaryScore, score=SCORES[score]), token_shift=2, positions=NoPositions)
    prompt = data.shakespeare()[1].encode("ROMEO")
    wanted = model.generate(prompt[None], 40, temperature=0)[0, len(prompt) :].tolist()
    ask = """[true, false].map(use_cache => {
        const stream = generate(model, inputs, {temperature: 0, use_cache});
        return Array.from({length: 40}, () => stream.next().value.token);
    })"""
    assert in_node(page_of(model, tmp_path), ask, prompt.tolist()) == [wanted, wanted]


@needs_node
def test_a_seed_gives_the_same_text_and_another_seed_another(tmp_path):
    ask = """[0, 0, 1].map(seed => {
        const stream = generate(model, inputs, {temperature: 1, top_k: 20, random: seeded(seed)});
        return Array.from({length: 30}, () => stream.next().value.token);
    })"""
    first, again, other = in_node(page_of(tiny_text_model(), tmp_path), ask, [1, 2, 3])
    assert first == again != other


@needs_node
def test_sampling_follows_temperature_and_top_k(tmp_path):
    ask = """(() => {
        const random = seeded(3), logits = Float32Array.from(inputs), counts = [0, 0, 0, 0];
        for (let n = 0; n < 20000; n++) counts[sample(logits, {temperature: 0.5, top_k: 3, random})] += 1 / 20000;
        return counts;
    })()"""
    logits = torch.tensor([0.3, -0.1, 0.6, -0.4])
    found = in_node(page_of(tiny_text_model(), tmp_path), ask, logits.tolist())
    wanted = torch.tensor([0.6, -0.2, 1.2, -torch.inf]).softmax(dim=0)
    torch.testing.assert_close(torch.tensor(found), wanted, atol=0.02, rtol=0)


def test_a_page_asks_for_nothing_and_carries_what_it_needs(tmp_path):
    page = page_of(tiny_image_model(), tmp_path, title="</title><script>alert(1)</script> {{script}}")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<script>alert(1)" not in page
    assert "{{script}}" in page  # what is filled in is left as it is
    packed = data_of(page)
    assert len(packed["torch"]) == len(packed["input"]["labels"]) == 20


def test_tied_weights_are_packed_once(tmp_path):
    tied, untied = (tiny_text_model(tie_weights=tie) for tie in (True, False))
    sizes = [len(data_of(page_of(model, tmp_path))["tensors"]) for model in (tied, untied)]
    assert sizes[1] == sizes[0] + 1


def test_a_history_becomes_curves(tmp_path):
    history = sciformer.training.History([3.0, 2.0, 1.0], {"validation loss": [(2, 1.5)], "test accuracy": [(2, 0.5)]})
    packed = data_of(page_of(tiny_text_model(), tmp_path, history=history))
    assert packed["history"] == {"training loss": [[1, 3.0], [2, 2.0], [3, 1.0]], "validation loss": [[2, 1.5]]}
    assert data_of(page_of(tiny_text_model(), tmp_path, history=[1.0]))["history"] == {"training loss": [[1, 1.0]]}
    assert data_of(page_of(tiny_text_model(), tmp_path))["history"] is None


def test_a_pixel_setting_says_where_black_is(tmp_path):
    setting = replace(MNIST_PIXELS["quick"]["distance"], embed_dim=4, num_layers=1)
    packed = data_of(page_of(setting.model(), tmp_path, setting=setting))
    assert (packed["input"]["black"], packed["input"]["size"]) == (-1.0, 14)


class MyScore(DotProductScore):
    """Another class, so perhaps another formula."""


class MyModel(ImageTransformer):
    """Another class, so perhaps another forward pass."""


def broken(value):
    model = tiny_image_model()
    with torch.no_grad():
        model.blocks[0].feed_forward.up.weight = nn.Parameter(torch.full((48, 24), value))
    return model


REFUSED = {
    "a score of one's own": (
        lambda: tiny_image_model(score=MyScore),
        r"blocks\.0\.attention\.score is a MyScore, which",
    ),
    "another model": (lambda: MyModel(14, 7, 1, 10, 12, 3, 1), "got a MyModel"),
    "an encoder–decoder": (lambda: Transformer(11, 13, 17, 12, 3, 1), "got a Transformer"),
    "another activation": (lambda: tiny_text_model(activation=nn.Tanh), "feed_forward.activation is a Tanh"),
    "a well of one's own": (
        lambda: tiny_text_model(score=partial(EnergyWellScore, well=torch.exp)),
        "a well of its own",
    ),
    "a well fixed to a tensor": (
        lambda: tiny_text_model(score=partial(EnergyWellScore, well=partial(gaussian_well, alpha=torch.ones(1)))),
        "fixes alpha to",
    ),
    "colours": (lambda: ImageTransformer(14, 7, 3, 10, 12, 3, 1), r"wants 3 channel\(s\) of 14 × 14"),
    "another size": (lambda: ImageTransformer(32, 8, 1, 10, 12, 3, 1), "of 32 × 32"),
    "another vocabulary": (lambda: CharTransformer(11, 7, 12, 3, 1), "knows 11 tokens, and the vocabulary has 65"),
    "not finite": (lambda: broken(float("nan")), "not finite"),
    "too large for float16": (lambda: broken(1e5), "too large for float16"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_a_page_cannot_compute_is_refused_and_nothing_is_written(make, message, tmp_path):
    with pytest.raises(InputError, match=message):
        export_html(make(), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_number_type_is_refused(tmp_path):
    with pytest.raises(InputError, match="dtype must be one of float32, float16, int8, got 'float64'"):
        export_html(tiny_text_model(), tmp_path / "page.html", dtype="float64")


@needs_node
def test_a_vocabulary_of_ones_own(tmp_path):
    model = stirred(CharTransformer(4, 7, 12, 3, 1))
    packed = data_of(page_of(model, tmp_path, vocabulary=Vocabulary("abc\n")))
    assert packed["input"] == {"vocabulary": "abc\n", "prompt": "\n"}


def train(task, folder, *words):
    """Two steps of a tiny model."""
    sizes = {
        "--profile": "quick",
        "--steps": 2,
        "--embed-dim": 8,
        "--num-layers": 1,
        "--batch-size": 4,
        "--out": folder,
    }
    return cli.main(["train", task, *(str(word) for option in sizes.items() for word in option), *words])


def test_the_command_line_exports_what_it_has_trained(tmp_path, capsys):
    run, page = tmp_path / "run", tmp_path / "page.html"
    for task, words in (("mnist", []), ("shakespeare", ["--length", "8", "--positions", "rotary"])):
        assert train(task, run, "--num-heads", "2", "--score", "lorentzian_well", *words) == 0
        assert cli.main(["export", str(run), "--out", str(page), "--title", "Mine", "--dtype", "int8"]) == 0
        assert f"written: {page}, 0." in capsys.readouterr().out
        packed = data_of(page.read_text())
        assert ["steps", 2] in packed["facts"]
        assert packed["history"]["training loss"][-1][0] == 2
        model, setting, history = load_run(run)
        assert (setting.score, len(history.loss)) == ("lorentzian_well", 2)
        assert (
            (model(torch.zeros(1, 1, 28, 28)) if task == "mnist" else model(torch.zeros(1, 8).long())).isfinite().all()
        )


DAMAGES = {
    "no history": (lambda run: (run / "history.json").unlink(), "No such file"),
    "no JSON": (lambda run: (run / "history.json").write_text("{"), "is no history of a training"),
    "another setting": (
        lambda run: _change(run, lambda c: c["config"].pop("score")),
        "a setting that this version does",
    ),
    "another training": (lambda run: _change(run, lambda c: c["config"]["train"].update(new=1)), "no such training"),
    "another model": (lambda run: _change(run, lambda c: c["config"].update(embed_dim=16)), "weights of another model"),
}


def _change(run, change):
    content = json.loads((run / "history.json").read_text())
    change(content)
    (run / "history.json").write_text(json.dumps(content))


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_one_line(damage, message, tmp_path, capsys):
    run = tmp_path / "run"
    assert train("mnist", run) == 0
    damage(run)
    assert cli.main(["export", str(run), "--out", str(tmp_path / "page.html")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]
    assert not (tmp_path / "page.html").exists()


def test_the_name_comes_when_it_is_asked_for():
    name = "sciformer.teach.export"
    code = f"import sys, sciformer; assert {name!r} not in sys.modules; print(sciformer.export_html.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "export_html"
