"""What is said of a wrong result whose cause nobody knows."""

import pytest
import torch

from sciformer import check
from sciformer.check.conditions import separating
from sciformer.check.probing import probes
from sciformer.check.symptoms import symptom

R = ("result",)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def said(change, *shapes, names=R):
    """The sentence about `change(right result)`, for cases of these shapes."""
    right = [numbers(*shape, seed=n) for n, shape in enumerate(shapes)]
    inputs = [{"x": x} for x in right]
    return symptom(inputs, right, [change(x) for x in right], names)[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: -e, "the sign is wrong"),
        (lambda e: 3 * e, "each is 3 times the right one"),
        (lambda e: e / e.shape[-1] ** 0.5, "1 divided by the root of `x.shape[-1]`"),
        (lambda e: e * e.shape[-2], "`x.shape[-2]`"),
        (lambda e: e + 1, "each is the right one plus 1"),
        (lambda e: e.abs(), "the signs are gone"),
        (lambda e: 1 - e, "1 minus the right ones"),
        (lambda e: e * 0, "all of them are 0"),
        (lambda e: e.exp(), "one `exp` is too many"),
        (lambda e: e.flip(-1), "backwards along axis -1"),
        (lambda e: e.roll(1, -2), "shifted by one along axis -2"),
        (lambda e: e.cumsum(-1), "summed up along axis -1"),
        (lambda e: e.mean(-2, keepdim=True).expand_as(e), "all are the mean along axis -2"),
        (lambda e: e.flatten().sort().values.view_as(e), "the right numbers in another order"),
        (lambda e: e.tril() + e.triu(1).square(), "only those above the diagonal"),
        (lambda e: torch.cat([e[..., :1] ** 3, e[..., 1:]], dim=-1), "only those at index 0 of the last axis"),
        (lambda e: e.softmax(-1), "a softmax along axis -1 is too many"),
        (lambda e: e * (1 + e.abs().sum(-1, keepdim=True)), "each row is right up to a factor of its own"),
        (lambda e: e + numbers(1, e.shape[-1], seed=8), "each column is right up to a number of its own that is added"),
        (lambda e: e[torch.arange(len(e)) ^ 1] if len(e) == 2 else e[[1, 0, 4, 2, 3]], "the slices along axis -2"),
        (lambda e: e + 0.01 * numbers(*e.shape, seed=7).clamp(-1, 1), "they come close, off by"),
    ],
)
def test_a_relation_is_told(change, words):
    assert words in said(change, (2, 3), (5, 7))


def test_a_transposed_square_is_told():
    assert "axes -2 and -1 are exchanged" in said(lambda e: e.mT, (3, 3), (5, 5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e[None], "an axis of size 1 too many"),
        (lambda e: e.mT, "the axes stand in another order"),
        (lambda e: e.flatten(), "only the shape is not"),
        (lambda e: e[..., None] * torch.tensor([0.25, 0.75]), "The sum over axis 2 would be right"),
        (lambda e: e[:, :-1], "Along axis 1, the last one is missing; the others are right."),
        (lambda e: e[:, 1:], "Along axis 1, the first one is missing; the others are right."),
        (lambda e: torch.cat([e, 7 + e], dim=0), "Along axis 0, the last 2 are too many; the others are right."),
        (lambda e: e[:, ::2], "Along axis 1, 1 is missing; the others are right."),
    ],
)
def test_a_wrong_shape_is_compared_with_the_right_one(change, words):
    assert words in said(change, (2, 3))


def test_a_grid_that_ends_too_early_is_told():
    right = [torch.tensor(radius) for radius in (0.767, 1.533, 48.5)]
    grid = torch.linspace(0, 10, 1001)
    got = [grid[(grid - radius).abs().argmin()] for radius in right]
    says = symptom([{}] * 3, right, got, R)[1]
    assert "on 2 of 3 inputs they come close, off by 0.39 %" in says
    assert "a grid that is too coarse and ends too early?" in says
    assert "come close" not in symptom([{}] * 3, right, [got[0], got[2], got[1]], R)[1], "one of three can be chance"


def test_nothing_is_claimed_where_nothing_fits():
    assert "does not recognize why" in said(lambda e: e + numbers(*e.shape, seed=9), (2, 3), (5, 7))


def test_two_numbers_are_no_evidence():
    assert "does not recognize why" in said(lambda e: 3 * e, (1, 2))


def test_a_single_number_is_always_the_right_one_times_something():
    right = [torch.tensor(2.0), torch.tensor(3.0), torch.tensor(7.0)]
    inputs = [{"x": numbers(2, 3)}] * 3
    says = symptom(inputs, right, [torch.tensor(5.0), torch.tensor(2.0), torch.tensor(1.0)], R)[1]
    assert "does not recognize why" in says
    sizes = [{"x": numbers(2, n)} for n in (2, 3, 5)]
    says = symptom(sizes, right, [n * x for n, x in zip((2, 3, 5), right, strict=True)], R)[1]
    assert "times a factor that depends on the input (2, 3, 5), `x.shape[-1]`" in says


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ([[True, True], [True, True]], "all of them are True"),
        ([[False, True], [False, False]], "True and False are exchanged"),
        ([[True, False], [False, True]], "too few are True, and none that should not be"),
        ([[False, True], [True, False]], "only those above the diagonal and on it"),
    ],
)
def test_of_truth_values_the_relation_is_told(got, words):
    right = torch.tensor([[True, False], [True, True]])
    assert words in symptom([{}], [right], [torch.tensor(got)], R)[1]


def test_a_relation_has_to_hold_on_every_case():
    assert "times" not in said(lambda e: 3 * e if len(e) == 2 else e + e.roll(1, 0), (2, 3), (5, 7))


def test_tokens_and_features_have_no_diagonal():
    def change(e):
        return e.tril() + e.triu(1).square()

    assert "diagonal" in said(change, (2, 3, 3), (1, 5, 5))
    assert "diagonal" not in said(change, (2, 3, 4), (1, 5, 7))


def test_rows_that_do_not_sum_to_one():
    right = numbers(3, 4).softmax(-1)
    got = torch.rand(3, 4, generator=torch.Generator().manual_seed(2)).double()
    assert "a row sums to" in symptom([{"x": right}], [right], [got], R)[1]


def test_weights_that_should_be_0_and_are_small():
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    scores = [numbers(4, 4, seed=n) for n in range(3)]
    right = [s.masked_fill(~mask, -torch.inf).softmax(-1) for s in scores]
    for low, told in ((-10.0, True), (-9.0, True), (0.0, False)):
        got = [s.masked_fill(~mask, low).softmax(-1) for s in scores]
        says = symptom([{"x": s} for s in scores], right, got, R)[1]
        assert ("Is something finite, as −10, taken for minus infinity?" in says) is told


def test_nan_is_located():
    right = numbers(3, 4)
    got = right.clone()
    got[1] = torch.nan
    kind, says = symptom([{"x": right}], [right], [got], R)
    assert kind == "NaN"
    assert "in row 1." in says


def test_exchanged_results_are_told():
    right = [numbers(2, 3), numbers(2, 3, seed=1)]
    assert symptom([{}], [right], [right[::-1]], ("cos", "sin")) == (
        "wrong numbers",
        "Two results are exchanged: cos and sin.",
    )


def test_of_two_results_the_right_one_is_told():
    right = [numbers(2, 3), numbers(2, 3, seed=1)]
    says = symptom([{}], [right], [[right[0], 2 * right[1]]], ("cos", "sin"))[1]
    assert says == "Some numbers of the sin are wrong: each is 2 times the right one. Right: cos."


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        (({"m": None}, {"m": torch.ones(2, 2)}), "only where `m` is None"),
        (({"m": torch.ones(2, 2).bool()}, {"m": torch.eye(2).bool()}), "only where `m` hides nothing"),
        (({"x": torch.ones(1, 2, 3)}, {"x": torch.ones(2, 2, 3)}), "only where the first axis of `x` has size 1"),
        (
            ({"q": torch.ones(4, 3), "k": torch.ones(4, 3)}, {"q": torch.ones(2, 3), "k": torch.ones(4, 3)}),
            "`q` and `k` are equally long",
        ),
    ],
)
def test_where_it_is_right_is_told(cases, words):
    right = numbers(2, 3)
    says = symptom(list(cases), [right, right], [right, right + numbers(2, 3, seed=5)], R)[1]
    assert words in says


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ([torch.ones(3, 3), torch.ones(2, 2)], torch.ones(2, 3), "the last two sizes of `x` are equal"),
        ([5, 5], 3, "only where `x` is 5"),
    ],
)
def test_what_may_be_chance_is_told_from_two_cases_on(right, wrong, words):
    results = [numbers(2, 3)] * 3
    got = [*results[:2], numbers(2, 3, seed=5)]
    cases = [{"x": x} for x in (*right, wrong)]
    assert words in symptom(cases, results, got, R)[1]
    assert words not in symptom(cases[1:], results[1:], got[1:], R)[1]


def test_a_mask_that_counts_elsewhere_has_no_effect_in_some_cases():
    inputs = {"mask": torch.tensor([[True, False], [False, True]]), "flag": True}
    run = lambda case: case["mask"] & (not case["flag"])  # noqa: E731
    reference = lambda case: ~case["mask"]  # noqa: E731
    assert probes(run, reference, inputs) == "`mask` has no effect on the result, and should have one."
    assert probes(run, reference, inputs, [inputs | {"flag": False}]) == (
        "In some cases `mask` has no effect on the result, and should have one."
    )


def test_numbers_that_count_elsewhere_may_have_no_effect_in_some_cases():
    inputs = {"a": numbers(2, 3), "flag": True}
    run = lambda case: case["a"] * (not case["flag"])  # noqa: E731
    reference = lambda case: case["a"] * 2  # noqa: E731
    assert probes(run, reference, inputs) == "`a` has no effect on the result, and should have one."
    assert probes(run, reference, inputs, [inputs | {"flag": False}]) is None


@pytest.mark.parametrize(
    ("reads", "words"),
    [
        (lambda x: x.reshape(3, 2).mT, "only cuts its numbers into other rows"),
        (lambda x: x.mT.reshape(2, 3), "and its axes are exchanged"),
        (lambda x: x.flip(1), "read backwards along its last axis."),
        (lambda x: x.flip(0), "read backwards along its last axis but one."),
    ],
    ids=["reshape for transpose", "transpose for reshape", "columns backwards", "rows backwards"],
)
def test_an_input_that_is_read_in_a_wrong_order_is_told(reads, words):
    inputs = {"x": numbers(2, 3), "w": numbers(2, 3, seed=1)}
    says = probes(lambda case: reads(case["x"]) @ case["w"].mT, lambda case: case["x"] @ case["w"].mT, inputs)
    assert says is not None
    assert words in says


def test_a_wrong_order_explains_the_right_cases_too():
    inputs, one_row = ({"x": numbers(rows, 3), "w": numbers(2, 3, seed=1)} for rows in (2, 1))
    run = lambda case: case["x"].flip(0) @ case["w"].mT  # noqa: E731
    reference = lambda case: case["x"] @ case["w"].mT  # noqa: E731
    assert "backwards" in (probes(run, reference, inputs, [one_row]) or "")
    another = inputs | {"x": numbers(2, 3, seed=2)}
    run_by_chance = lambda case: (run if case is inputs else reference)(case)  # noqa: E731
    assert probes(run_by_chance, reference, inputs, [another]) is None


def test_an_input_without_effect_is_told():
    inputs = {"a": numbers(2, 3), "b": numbers(2, 3, seed=1)}
    assert probes(lambda case: case["a"] * 2, lambda case: case["a"] + case["b"], inputs) == (
        "`b` has no effect on the result, and should have one."
    )


def test_a_mask_and_a_number_without_effect_are_told():
    mask = torch.ones(3, 3).tril().bool()
    inputs = {"a": numbers(3, 3), "m": mask, "t": 2.0}
    assert probes(
        lambda case: case["a"] / case["t"] * mask, lambda case: case["a"] / case["t"] * case["m"], inputs
    ) == ("`m` has no effect on the result, and should have one.")
    assert probes(lambda case: case["a"] * case["m"], lambda case: case["a"] / case["t"] * case["m"], inputs) == (
        "`t` has no effect on the result, and should have one."
    )


def test_what_has_no_effect_in_the_right_answer_is_not_missed():
    inputs = {"a": numbers(3, 3), "t": 2.0}
    assert probes(lambda case: -case["a"], lambda case: case["a"], inputs) is None


def test_sequences_that_mix_are_told():
    inputs = {"x": numbers(2, 3, 4)}
    says = probes(lambda case: case["x"] - case["x"].mean(0), lambda case: case["x"], inputs)
    assert says == "Sequences are mixed up: changing the second one in `x` changes the result of the first."
    says = probes(lambda case: case["x"] + case["x"].cumsum(0), lambda case: case["x"], inputs)
    assert says == "Sequences are mixed up: changing the first one in `x` changes the result of the second."
    assert probes(lambda case: False, lambda case: True, inputs) is None, "one answer for all of them"
    assert probes(lambda case: case["x"] - case["x"].mean(1, keepdim=True), lambda case: case["x"], inputs) is None


def test_what_is_true_of_one_size_only_by_chance_is_not_told():
    right = [{"x": numbers(1, 2, 3), "mask": numbers(2, 3) > 9}]
    wrong = [{"x": numbers(2, 2, 3), "mask": numbers(2, 3) > 0}]
    says = "only where the first axis of `x` has size 1"
    tried = []

    def is_right(inputs, verdict):
        tried.append(inputs)
        return verdict

    assert separating(right, [{"x": wrong[0]["x"]}]) == says
    assert separating(right, [{"x": wrong[0]["x"]}], lambda inputs: is_right(inputs, True)) == says
    assert separating(right, [{"x": wrong[0]["x"]}], lambda inputs: is_right(inputs, None)) == says
    assert separating(right, [{"x": wrong[0]["x"]}], lambda inputs: is_right(inputs, False)) is None
    assert {inputs["x"].shape for inputs in tried} == {(1, 2, 3)}


def test_right_only_for_one_is_not_told_of_an_answer_that_ignores_a_mask_of_others(monkeypatch):
    head = check.EXERCISES["AttentionHead"]
    unknown = tuple(fault for fault in head.faults if fault.name != "mask ignored with a context")
    monkeypatch.setattr(head, "faults", unknown)

    class AttentionHead(head.reference):
        def forward(self, x, context=None, *, attn_mask=None):
            return super().forward(x, context, attn_mask=attn_mask if context is None else None)

    message = head.diagnose(AttentionHead, seed=7).message
    assert "right only" not in message
    assert "In some cases `attn_mask` has no effect" in message


def test_an_input_that_follows_from_the_others_is_not_missed():
    """Right once it is mended, without a look at the second input, which is always 1."""
    inputs = {"a": torch.randn(4), "b": torch.ones(4)}

    def reference(case):
        return case["a"] + case["b"]

    def run(case):
        return 2 * case["a"]

    assert "`b` has no effect" in probes(run, reference, inputs)
    assert probes(run, reference, inputs, mended=lambda case: case["a"] + 1) is None


def test_a_smaller_input_shows_what_is_said_of_a_mask(monkeypatch):
    monkeypatch.setattr(check.choose_visible, "faults", ())

    def answer(noise, hidden_share):
        visible = round((1 - hidden_share) * noise.shape[1])  # too few of 5 at a half, and too many of 3
        return noise.argsort(dim=1).argsort(dim=1) < visible

    message = check.choose_visible.diagnose(answer, seed=7).message
    assert "too few are True" in " ".join(message.split())
    assert "the smallest input that shows it: 2 images, 5 patches, hide 50%" in message
