"""The checkers: right answers pass however they are written, and every mistake reads a sentence of its own."""

import inspect
import itertools
import statistics
import sys
import time

import pytest
import torch
import torch.nn.functional as F

from sciformer import check
from sciformer.check import EXERCISES, Case, Diagnosis, Draw, Exercise, Fault
from sciformer.check.telling import LONGEST, listed
from sciformer.check.values import same
from sciformer.check.written_tests import WrittenTest
from sciformer.exercises.ways import ways_of

FAULTS = [(exercise, fault) for exercise in EXERCISES.values() for fault in exercise.faults]
NAMED = {"ids": lambda thing: getattr(thing, "name", thing if isinstance(thing, str) else None)}


ANSWERS = [(exercise, name) for exercise in EXERCISES.values() for name in ways_of(exercise)]


@pytest.mark.parametrize("exercise", EXERCISES.values(), **NAMED)
def test_every_exercise_has_a_solution_that_is_written_in_several_ways(exercise):
    assert exercise.name in ways_of(exercise)
    assert len(ways_of(exercise)) >= 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("exercise", "name"), ANSWERS, **NAMED)
def test_right_answers_are_right(exercise, name, dtype):
    for seed in range(2):
        diagnosis = exercise.diagnose(ways_of(exercise)[name], seed=seed, dtype=dtype)
        assert diagnosis.correct, diagnosis.message


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(("exercise", "name"), ANSWERS, **NAMED)
def test_right_answers_are_right_on_a_gpu(exercise, name):
    diagnosis = exercise.diagnose(ways_of(exercise)[name], seed=0, device="cuda")
    assert diagnosis.correct, diagnosis.message


@pytest.mark.parametrize(("exercise", "fault"), FAULTS, **NAMED)
def test_every_fault_gets_its_own_diagnosis(exercise, fault):
    """With one seed: test_check_seeds.py holds the numbers behind it apart for five and, on demand, for a hundred."""
    diagnosis = exercise.diagnose(exercise.wrong_answer(fault), seed=0)
    assert (diagnosis.kind, diagnosis.faults) == ("known mistake", (fault.name,)), diagnosis.message
    assert fault.says in diagnosis.says
    evidence = "versions that it" if isinstance(exercise, WrittenTest) else "smallest input that shows it"
    assert evidence in diagnosis.message or "\n  on this input: " in diagnosis.message
    assert len(diagnosis.message.splitlines()) <= LONGEST, diagnosis.message


@pytest.mark.parametrize("exercise", EXERCISES.values(), **NAMED)
def test_no_two_faults_read_the_same(exercise):
    assert len({fault.name for fault in exercise.faults}) == len(exercise.faults)
    assert len({fault.says for fault in exercise.faults}) == len(exercise.faults) >= 3
    for fault in exercise.faults:
        assert fault.says[0].isupper(), fault.says
        assert fault.says.endswith((".", "?")), fault.says


def differs(exercise, answer, case, right, seed):
    """Whether an answer stops on a case, or has other numbers than the right ones, which no diagnosis calls right."""
    try:
        return not same(exercise.numbers(answer, case, seed), right)
    except Exception:
        return True


@pytest.mark.parametrize("exercise", EXERCISES.values(), **NAMED)
def test_two_mistakes_are_never_called_right(exercise, monkeypatch):
    monkeypatch.setattr("sciformer.check.judging.find_cause", lambda *_, **__: None)  # not the question here
    cases = exercise.draw(3)
    right = [exercise.numbers(exercise.reference, case, 3) for case in cases]
    for one, two in itertools.combinations(exercise.faults, 2):
        wrong = exercise.wrong_answer(one, two)
        if not any(differs(exercise, wrong, *case_and_result, 3) for case_and_result in zip(cases, right, strict=True)):
            diagnosis = exercise.diagnose(wrong, seed=3)
            assert not diagnosis.correct, (one.name, two.name)


def test_two_mistakes_are_both_named():
    diagnosis = check.scaled_dot_product.diagnose(lambda q, k, v, m=None: (q @ k.T).softmax(dim=-1) @ v, seed=0)
    assert diagnosis.faults == ("no scale", "mask ignored")


def test_six_wrong_answers_read_six_sentences(capsys, monkeypatch):
    monkeypatch.setattr(check.settings, "tell", "cause")

    def answer(
        scale=lambda q: q.shape[-1] ** 0.5, fill=float("-inf"), invert=False, dim=-1, after=False, mix_keys=False
    ):
        def mine(query, key, value, attn_mask=None):
            scores = query @ key.T / scale(query)
            if attn_mask is not None and not after:
                scores = scores.masked_fill(attn_mask if invert else ~attn_mask, fill)
            weights = scores.softmax(dim=dim)
            if attn_mask is not None and after:
                weights = weights * attn_mask
            return weights @ (key if mix_keys else value)

        return mine

    wrong = {
        "not divided by √D": answer(scale=lambda q: 1),
        "over the queries": answer(dim=-2),
        "wrong way round": answer(invert=True),
        "set to 0": answer(fill=0.0),
        "after the softmax": answer(after=True),
        "average the keys": answer(mix_keys=True),
    }
    for words, mine in wrong.items():
        check.scaled_dot_product(mine)
        assert words in " ".join(capsys.readouterr().out.split())
    check.scaled_dot_product(answer())
    assert capsys.readouterr().out == "scaled_dot_product: correct\n"


# Mistakes as students write them, which is not how the reference's steps make them.


def touched(attention, x, words, change):
    """Whether the outputs before any of these words differ when it changes."""
    before = attention(x)
    for j in words:
        changed = x.clone()
        change(changed[j])
        if not torch.equal(attention(changed)[:j], before[:j]):
            return True
    return False


def jacobian(attention, x):
    return torch.autograd.functional.jacobian(attention, x)


def negative_range(length, back):
    mask = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        for j in range(i - back, i + 1):
            mask[i, j] = True
    return mask


def shorter_words(x, temperature):
    x = x / temperature**0.5
    return (x @ x.T).softmax(dim=-1) @ x


def energies_in_float64(query, key, weight, alpha):
    squared = (query[:, :, None] - key[:, None]).double().square().sum(dim=-1)
    energy = weight * (-alpha[:, None, None] * squared).exp()
    return (energy / energy.sum(dim=-1, keepdim=True)).to(query)


WRITTEN = {
    ("recent_words", "negative range"): [negative_range],
    ("tempered_attention", "words divided by √T"): [shorter_words],
    ("masked_weights", "mask inverted, with −1e9"): [
        lambda scores, mask: torch.where(mask, -1e9, scores).softmax(dim=-1),
    ],
    ("far_field", "energies in float64"): [energies_in_float64],
    ("text_perplexity", "flattened before the shift"): [
        lambda logits, tokens: F.cross_entropy(logits.flatten(0, 1)[:-1], tokens.flatten()[1:]).exp(),
    ],
    ("seasonal_naive", "no modulo"): [
        lambda past, season, horizon: torch.stack([past[:, i - season] for i in range(horizon)], dim=1),
    ],
    ("seed_spread", "divided by the root of the number of scores"): [
        lambda values: (values.mean(dim=1), values.std(dim=1) / len(values) ** 0.5),
    ],
    ("future_leaks", "last word only"): [
        lambda attention, x: bool(jacobian(attention, x)[:-1, :, -1].any()),
    ],
    ("future_leaks", "next word only"): [
        lambda attention, x: any(bool(jacobian(attention, x)[i, :, i + 1].any()) for i in range(len(x) - 1)),
    ],
    ("future_leaks", "first feature of the output"): [
        lambda attention, x: any(
            bool(torch.autograd.functional.jacobian(lambda x, i=i: attention(x)[i, 0], x)[i + 1 :].any())
            for i in range(len(x))
        ),
    ],
    ("future_leaks", "first feature of the word"): [
        lambda attention, x: touched(attention, x, range(1, len(x)), lambda word: word[:1].add_(1)),
    ],
    ("future_leaks", "same feature only"): [
        lambda attention, x: bool(jacobian(attention, x)[:, 0, :, 0].triu(diagonal=1).any()),
        lambda attention, x: bool(torch.einsum("idjd->ij", jacobian(attention, x).abs()).triu(diagonal=1).any()),
    ],
    ("future_leaks", "sum over a word's features"): [
        lambda attention, x: touched(attention, x, range(1, len(x)), lambda word: word.add_(1)),
    ],
    ("future_leaks", "first output only"): [
        lambda attention, x: bool(jacobian(attention, x)[0, :, 1:].any()),
    ],
}


@pytest.mark.parametrize(("exercise", "fault"), WRITTEN)
def test_a_mistake_has_its_name_however_it_is_written(exercise, fault):
    for answer in WRITTEN[exercise, fault]:
        diagnosis = EXERCISES[exercise].diagnose(answer, seed=0)
        assert diagnosis.faults == (fault,), diagnosis.message


def first_look_only(curves, free):
    whole, looks = [], []
    for n, row in enumerate(curves.tolist()):
        given = len(row)
        for t in range(len(row) - 1):
            if n >= free and row[0] < statistics.median(other[t] for other in whole):
                given = t + 1
                break
        if given == len(row):
            whole.append(row)
        looks.append(given)
    return torch.tensor(looks)


def query_and_all_after_it(score, query, key):
    whole = score(query, key)
    alone = [[score(query[i:], key[j : j + 1])[0, 0] for j in range(len(key))] for i in range(len(query))]
    return torch.allclose(torch.tensor(alone), whole, atol=1e-4)


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [
        ("looks_given", first_look_only),
        ("future_leaks", lambda attention, x: bool(jacobian(attention, x).relu().sum(dim=(1, 3)).triu(1).any())),
        ("is_pairwise", query_and_all_after_it),
    ],
)
def test_what_was_called_right_with_some_seeds_is_wrong_with_all(exercise, answer):
    exercise = EXERCISES[exercise]
    for seed in range(100):
        cases = exercise.draw(seed)
        seen = exercise.observe(answer, cases, seed)
        wanted = [exercise.numbers(exercise.reference, case, seed) for case in cases]
        assert any(not same(call.output, one) for call, one in zip(seen.calls, wanted, strict=True))


def exchanged(model, images, patch_size):
    patches = F.unfold(images, patch_size, stride=patch_size)
    orders = torch.stack([torch.randperm(patches.shape[2]) for _ in range(10)])
    after = [model(F.fold(patches[:, :, order], images.shape[2:], patch_size, stride=patch_size)) for order in orders]
    return ((model(images) - torch.stack(after)).abs() > 1e-4).any()


def same_alone(score, query, key):
    alone = torch.cat([torch.cat([score(q[None], k[None]) for k in key], dim=1) for q in query])
    return ((score(query, key) - alone).abs() < 1e-4).all()


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [
        ("future_leaks", lambda attention, x: jacobian(attention, x).abs().sum(dim=(1, 3)).triu(diagonal=1).any()),
        ("order_matters", exchanged),
        ("is_pairwise", same_alone),
    ],
)
def test_a_truth_value_may_be_a_tensor(exercise, answer):
    diagnosis = EXERCISES[exercise].diagnose(answer, seed=0)
    assert diagnosis.correct, diagnosis.message


def scored(name, value):
    """A score that keeps this under a name."""

    class Score(torch.nn.Module):
        def __init__(self, num_heads, head_dim):
            super().__init__()
            setattr(self, name, value)

        def forward(self, query, key, **options):
            return query @ key.mT

    return Score


@pytest.mark.parametrize(("exercise", "name"), [("TemperedScore", "log_temperature"), ("TwoSidedScore", "strength")])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.1, "a value of type float"),
        ([0.1, 0.1], "a sequence of 2"),
        (torch.nn.Linear(2, 2), "a value of type torch.nn.modules.linear.Linear"),
        (None, "None"),
    ],
)
def test_a_parameter_that_is_no_tensor_is_reported_as_one(exercise, name, value, words):
    diagnosis = EXERCISES[exercise].diagnose(scored(name, value), seed=0)
    assert diagnosis.kind == "wrong type"
    assert f"`{name}` should be an nn.Parameter, but it is {words}." in diagnosis.says


def test_a_parameter_of_another_name_is_missed():
    diagnosis = check.TwoSidedScore.diagnose(scored("slopes", torch.nn.Parameter(torch.full((2, 2), 0.1))), seed=0)
    assert "`strength` should be an nn.Parameter, but it is None." in diagnosis.says


def test_several_looks_should_be_a_tensor():
    diagnosis = check.looks_given.diagnose(lambda curves, free: [len(row) for row in curves], seed=0)
    assert diagnosis.says == "The looks should be a tensor, not a sequence of 4."


@pytest.mark.parametrize(
    ("exercise", "answer", "wanted", "given"),
    [
        (
            "frozen_features",
            lambda encoder, train, test: encoder(train),
            "the training features, and the test features",
            "a tensor",
        ),
        ("with_time", lambda query, key, times, strength: query, "the longer query, and the longer key", "a tensor"),
        ("read_token", lambda past, score, value: (1, 2, value), "what to keep, and the output", "a sequence of 3"),
    ],
)
def test_where_two_results_are_wanted_another_number_of_them_is_reported(exercise, answer, wanted, given):
    diagnosis = EXERCISES[exercise].diagnose(answer, seed=0)
    assert diagnosis.kind == "wrong type"
    assert diagnosis.says.startswith(f"Two results are wanted: {wanted}. This is {given}.\n")


def test_where_one_result_is_wanted_two_are_reported():
    diagnosis = check.read_piece.diagnose(lambda x, table, layers, cache: (x, cache), seed=0)
    assert diagnosis.kind == "wrong type"
    assert diagnosis.says.startswith("For each chunk one tensor is wanted: its states.")


# What is not a matter of numbers, on a small exercise of its own.


def double(x, n, *, times=lambda x: 2 * x):
    return times(x)


DOUBLE = Exercise(
    double,
    notebook="99",
    section="Twice",
    level="easy",
    minutes=1,
    cases=lambda draw: [Case("one", {"x": draw.normal(1), "n": 0}), Case("six", {"x": draw.normal(2, 3), "n": 1})],
    faults=[Fault("squared", "It is squared.", see="Squares", times=lambda x: x * x)],
    seconds=0.5,
)


def looping(x, n):
    while True:
        n += 1


def swallowing(x, n):
    for _ in range(500):  # longer than anyone waits, and then its thread ends
        try:
            time.sleep(0.01)
        except:  # noqa: E722, as careless people write it
            n += 1


def changing(x, n):
    x *= 2
    return x


def failing(x, n):
    return x.reshape(5, 7)


def failing_for_one(x, n):
    return 2 * x if n else undefined


def through_numpy(x, n):
    numbers = x.numpy()
    return torch.from_numpy(2 * numbers)


def in_place(x, n):
    y = x.exp()
    result = 2 * y.log()
    y *= 2
    return result


def stub(x, n):
    raise NotImplementedError


calls = itertools.count()

PROBLEMS = {
    "not attempted": (stub, "not attempted yet"),
    "wrong type": (3, "A function or a class is wanted, but this is a value of type int."),
    "wrong type: a result": (torch.ones(2), "but this is a tensor."),
    "wrong type: nothing": (lambda x, n: None, "It returns None. Is the return missing?"),
    "wrong type: a list": (lambda x, n: x.tolist(), "The result should be a tensor, not a sequence of 1."),
    "wrong type: numpy": (lambda x, n: (2 * x).numpy(), "a value of type numpy.ndarray"),
    "wrong type: whole numbers": (lambda x, n: (2 * x).long(), "a tensor of torch.float32, not of torch.int64"),
    "wrong shape": (lambda x, n: 2 * x[None], "The result should have shape (1,), not (1, 1)."),
    "wrong type: a number": (lambda x, n: 10**400, "The result should be a tensor, not a value of type int."),
    "NaN": (lambda x, n: x * float("nan"), "There is NaN in the result"),
    "wrong numbers": (lambda x, n: 2 * x + n, "it is right only where `n` is"),
    "raises": (failing, "in your line: return x.reshape(5, 7)"),
    "raises: sometimes": (failing_for_one, "NameError: name 'undefined' is not defined"),
    "raises: wrong call": (lambda: 1, "it is called with x, n"),
    "raises: not implemented by torch": (
        lambda x, n: torch.ones(2, device="meta").cpu(),
        "NotImplementedError: Cannot",
    ),
    "raises: exit": (lambda x, n: sys.exit(4), "SystemExit: 4"),
    "raises: too deep": (lambda x, n: PROBLEMS["raises: too deep"][0](x, n), "RecursionError"),
    "changes its input": (changing, "changes its input `x`"),
    "not repeatable": (lambda x, n: 2 * x + next(calls), "different results"),
    "no gradient": (lambda x, n: 2 * x.detach(), "no gradient flows back to x"),
    "no gradient: NumPy": (
        through_numpy,
        "NumPy does not record the computation. Use torch's functions throughout.\n  in your line: numbers = x.numpy()",
    ),
    "no gradient: in place": (in_place, "overwrites what the backward pass still needs"),
    "too slow": (looping, "not done after 0.5 seconds"),
    "too slow: stubborn": (swallowing, "not done after 0.5 seconds"),
    "known mistake": (lambda x, n: x**2, "It is squared."),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_has_its_own_message(name, capsys):
    answer, words = PROBLEMS[name]
    diagnosis = DOUBLE.diagnose(answer, seed=1)
    assert isinstance(diagnosis, Diagnosis)
    assert diagnosis.kind == name.split(":")[0]
    assert words in diagnosis.says
    DOUBLE(answer, seed=1)  # prints, and does not raise
    assert capsys.readouterr().out.startswith("double: not ")


def test_of_many_right_cases_a_few_are_named_each_once():
    assert listed(["a", "b", "a"]) == "a; b"
    assert listed(["a", "b", "c", "b", "d", "e"]) == "a; b; c; and 2 more"
    message = check.is_pairwise.diagnose(lambda score, query, key: len(key) < 4, seed=0).message
    assert len(message.splitlines()) <= LONGEST


def test_an_error_of_many_lines_is_told_in_a_few():
    def verbose(x, n):
        raise ValueError("\n".join(f"line {k} of a long story" for k in range(200)))

    assert len(DOUBLE.diagnose(verbose, seed=1).message.splitlines()) <= LONGEST


def test_a_wrong_answer_sees_the_smallest_input_in_full():
    message = DOUBLE.diagnose(lambda x, n: x**2, seed=1).message
    (x,) = Draw(1, torch.float32, "cpu").normal(1).tolist()
    assert message == (
        "double: not right yet. It is squared.\n"
        "  the smallest input that shows it: one\n"
        f"    x         [{x:.1f}]\n"
        "    n         0\n"
        f"    expected  [{2 * x:.1f}]\n"
        f"    got       [{x * x:.2f}]\n"
        "  read again: notebook 99, 'Squares'"
    )


@pytest.mark.parametrize("exercise", EXERCISES.values(), **NAMED)
def test_a_missing_return_is_reported_as_one(exercise):
    if isinstance(exercise, WrittenTest):
        pytest.skip("a test returns nothing")
    diagnosis = exercise.diagnose(lambda *inputs, **options: None, seed=0)
    assert (diagnosis.kind, diagnosis.says) == ("wrong type", "It returns None. Is the return missing?")


def test_an_answer_may_return_nothing_where_nothing_is_wanted():
    def double_in_place(x, *, factor=2):
        x *= factor

    def call(answer, x):
        answer(x := x.clone())
        return x

    exercise = Exercise(
        double_in_place,
        notebook="99",
        section="Twice",
        level="easy",
        minutes=1,
        cases=lambda draw: [Case("two", {"x": draw.normal(2)})],
        faults=[Fault("tripled", "It is tripled.", factor=3)],
        call=call,
        differentiable=False,
    )
    assert exercise.diagnose(double_in_place).correct
    assert exercise.diagnose(exercise.wrong_answer(*exercise.faults)).faults == ("tripled",)


def test_zeros_and_ones_are_no_mask():
    diagnosis = check.recent_words.diagnose(lambda length, back: torch.ones(length, length).tril().triu(-back).long())
    assert diagnosis.kind == "wrong type"
    assert "a tensor of torch.bool, not of torch.int64." in diagnosis.message


def test_numbers_that_look_alike_are_shown_with_more_digits():
    message = DOUBLE.diagnose(lambda x, n: 2 * x + 3e-4, seed=1).message
    assert "expected  [1.4]\n    got       [1.4003]" in message


def test_inputs_are_fresh_unless_a_seed_is_given():
    seen = []

    def remember(x, n):
        seen.append(x.clone())
        return 2 * x

    for seed in (None, None, 5, 5):
        DOUBLE.diagnose(remember, seed=seed)
    calls = len(seen) // 4
    first, second, third, fourth = (seen[n * calls + calls - 1] for n in range(4))
    assert not torch.equal(first, second)
    assert torch.equal(third, fourth)


def test_a_memorized_answer_is_wrong():
    numbers = {}
    DOUBLE.diagnose(lambda x, n: numbers.setdefault(n, 2 * x), seed=1)
    assert not DOUBLE.diagnose(lambda x, n: numbers[n], seed=2).correct


def test_a_check_leaves_the_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    check.masked_weights.diagnose(lambda scores, attn_mask: scores + torch.rand(1))
    torch.testing.assert_close(torch.rand(3), expected)


def test_an_unknown_exercise_names_the_known_ones():
    with pytest.raises(AttributeError, match=r"no exercise 'scaled'.*scaled_dot_product"):
        _ = check.scaled


@pytest.mark.parametrize("exercise", EXERCISES.values(), **NAMED)
def test_answers_take_the_inputs_in_order(exercise):
    """The folded solution's parameters are those that the checker shows."""
    if exercise.call is None:
        parameters = inspect.signature(ways_of(exercise)[exercise.name]).parameters
        assert list(parameters) == list(exercise.draw(0)[0].inputs)
