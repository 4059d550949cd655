"""The claims: what was said, whose it is, and how it is measured."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sciformer.lab.claims.computed import (
    cancelling_query,
    favours_other_clusters,
    half_turn,
    ignored_source,
    leaking_divisor,
    leaking_mask,
    moat,
    published_parameters,
    sharper_is_more_local,
)
from sciformer.lab.claims.measured import (
    ACCURACY,
    LOSS,
    MATCH,
    TWO,
    additive_memory,
    better_set_by_hand,
    every_doubling_of_blocks,
    faster_in_bake_offs,
    grid_no_worse_than_positions,
    in_bake_offs,
    longer_texts,
    no_worse_than_positions,
    overfits,
    prefers_near,
    recipe_against_plain,
    rises_with_sizes,
    slopes_for_far_tokens,
    wells_in_time,
    wells_on,
)
from sciformer.lab.claims.rules import Finding, compare, reach


@dataclass(frozen=True)
class Claim:
    """What was said, and how it is measured.

    Args:
        claimed: the claim, in a sentence.
        system: what it is about.
        source: the key, in docs/references.bib, of the work that makes the claim; empty for a theorem or a
            hypothesis of this course.
        notebook: the number of the notebook that shows why.
        findings: measures it.
    """

    claimed: str
    system: str
    source: str
    notebook: int
    findings: Callable[[], Iterable[Finding]]


DISTANCE, ADDITIVE, WELL = "distance bias (DB-Transformer)", "additive attention", "energy wells"
COUPLED = "encoder–decoder"
#: The works whose claims are measured, by their keys in docs/references.bib.
DB_TRANSFORMER, ADDITIVE_SYSTEM = "ghostdsr_dbtransformer", "blindtissue_additive"
WELL_PAPER, SCIFORMER = "sarker2024energywellattention", "kaifishr_sciformer"
ALIBI, TRANSFORMER, MASKED = "press2022alibi", "vaswani2017attention", "he2022masked"
OURS = ""

CLAIMS = [
    Claim(
        "Theorem: with one slope for both sides and a mean over the tokens, a digit and the same digit turned by 180° "
        "get the same answer",
        DISTANCE,
        OURS,
        7,
        half_turn,
    ),
    Claim("Theorem: in the separable form the query cancels; all attend alike", ADDITIVE, OURS, 9, cancelling_query),
    Claim(
        "Theorem: a well, as stated, has a moat; far tokens weigh as much as one at distance 0", WELL, OURS, 10, moat
    ),
    Claim(
        "Theorem: a trainable additive mask in place of the causal one leaks the future",
        "trainable masks",
        OURS,
        2,
        leaking_mask,
    ),
    Claim(
        "Theorem: a decoder that takes keys and values from itself ignores its source",
        COUPLED,
        OURS,
        11,
        ignored_source,
    ),
    Claim(
        "A distance bias replaces positional encodings: it is no worse than they are",
        DISTANCE,
        DB_TRANSFORMER,
        7,
        no_worse_than_positions,
    ),
    Claim(
        "With a distance bias about 79 % of digits are right, as 784 pixels",
        DISTANCE,
        DB_TRANSFORMER,
        7,
        lambda: [reach("mnist-784-published", ACCURACY, None, 0.79, relation="equal")],
    ),
    Claim(
        "The distance-biased model of 784 pixels has about 250,000 parameters",
        DISTANCE,
        DB_TRANSFORMER,
        7,
        published_parameters,
    ),
    Claim(
        "A distance bias learns to prefer near tokens: after training it looks less far than before",
        DISTANCE,
        DB_TRANSFORMER,
        7,
        prefers_near,
    ),
    Claim(
        "A distance bias can learn to prefer far tokens: a slope below 0",
        DISTANCE,
        DB_TRANSFORMER,
        7,
        slopes_for_far_tokens,
    ),
    Claim(
        "With ALiBi, eight times the trained length makes the loss no worse",
        "distance bias (ALiBi)",
        ALIBI,
        8,
        lambda: longer_texts("distance"),
    ),
    Claim(
        "With sinusoids, eight times the trained length makes the loss no worse",
        "sinusoidal positions",
        TRANSFORMER,
        8,
        lambda: longer_texts("sinusoidal"),
    ),
    Claim(
        "Hypothesis: with other positions, eight times the trained length makes the loss no worse",
        "positions",
        OURS,
        8,
        lambda: longer_texts("learned", "none", "rotary"),
    ),
    Claim(
        "Sinusoidal and learned positions do equally well",
        ADDITIVE,
        ADDITIVE_SYSTEM,
        9,
        lambda: [
            compare(TWO, LOSS, f"sinusoidal, {score}", f"learned, {score}", relation="equal", condition=f"with {score}")
            for score in ("dot", "separable")
        ],
    ),
    Claim(
        "Separable additive attention keeps up with the dot product",
        ADDITIVE,
        ADDITIVE_SYSTEM,
        9,
        lambda: (
            [
                compare(TWO, LOSS, f"{kind}, separable", f"{kind}, dot", relation="no worse", condition=f"with {kind}")
                for kind in ("sinusoidal", "learned")
            ]
            + in_bake_offs("separable", "no worse")
        ),
    ),
    Claim("The dot product overfits where the separable form does not", ADDITIVE, ADDITIVE_SYSTEM, 9, overfits),
    Claim(
        "Bahdanau's form is feasible: it learns no worse than the dot product",
        ADDITIVE,
        ADDITIVE_SYSTEM,
        9,
        lambda: in_bake_offs("additive", "no worse"),
    ),
    Claim("Bahdanau's form needs about 64 times the memory", ADDITIVE, ADDITIVE_SYSTEM, 9, additive_memory),
    Claim(
        "The separable form takes less time than the dot product",
        ADDITIVE,
        OURS,
        9,
        lambda: faster_in_bake_offs("separable"),
    ),
    Claim("A higher α makes attention more local", WELL, WELL_PAPER, 10, sharper_is_more_local),
    Claim(
        "The Lorentzian well favours other clusters", WELL, WELL_PAPER, 10, lambda: favours_other_clusters("lorentzian")
    ),
    Claim(
        "The softmax-exponential well favours other clusters",
        WELL,
        WELL_PAPER,
        10,
        lambda: favours_other_clusters("softmax_exponential"),
    ),
    Claim("The softmax-exponential well, over all keys, leaks the future", WELL, OURS, 10, leaking_divisor),
    Claim(
        "Self-attention reaches no more than 10.7 % of MNIST",
        WELL,
        WELL_PAPER,
        10,
        lambda: [reach("energy-wells", ACCURACY, "dot", 0.107, relation="no higher")],
    ),
    Claim(
        "Wells, as stated, are more accurate than the dot product",
        WELL,
        WELL_PAPER,
        10,
        lambda: (
            wells_on("energy-wells", ACCURACY, "gradient", "on images")
            + wells_on("energy-wells-text", LOSS, "gradient", "on text")
        ),
    ),
    Claim(
        "Hypothesis: wells, as fields, are more accurate than the dot product",
        WELL,
        OURS,
        10,
        lambda: (
            wells_on("energy-wells", ACCURACY, "field", "on images")
            + wells_on("energy-wells-text", LOSS, "field", "on text")
        ),
    ),
    Claim(
        "Wells cost less time than the dot product",
        WELL,
        WELL_PAPER,
        10,
        wells_in_time,
    ),
    Claim(
        "An encoder–decoder turns sequences into sequences: it reverses every string of the trained lengths",
        COUPLED,
        TRANSFORMER,
        11,
        lambda: [reach("reversal", MATCH, "sinusoidal", 1.0)],
    ),
    Claim(
        "Hypothesis: an encoder–decoder reverses strings ten times as long as those it was trained on, too",
        COUPLED,
        OURS,
        11,
        lambda: [reach("reversal", f"{MATCH} at ten times the length", "sinusoidal", 1.0)],
    ),
    Claim(
        "An encoder–decoder writes dates in one form, as well as the 96 % of an LSTM with attention",
        COUPLED,
        OURS,
        11,
        lambda: [
            reach("dates", f"{MATCH}{test}", None, 0.96, condition=condition)
            for test, condition in (("", "on new days"), (" on new forms", "on new forms"))
        ],
    ),
    Claim(
        "Restoring hidden patches teaches an encoder without labels: a linear probe reads more",
        "masked images",
        MASKED,
        12,
        lambda: [
            compare("masked-images", "probe accuracy", None, None, other_metric=other, condition=condition)
            for other, condition in (
                ("probe accuracy untrained", "against the untrained encoder"),
                ("probe accuracy of pixels", "against pixels"),
            )
        ],
    ),
    Claim(
        "Accuracy rises with heads, head dimension and sequence length, in that order",
        "random search",
        SCIFORMER,
        14,
        rises_with_sizes,
    ),
    Claim("More blocks always help", "random search", SCIFORMER, 14, every_doubling_of_blocks),
    Claim(
        "Hypothesis: standardised rows do no worse than the softmax",
        "standardised rows",
        OURS,
        1,
        lambda: recipe_against_plain("standardized", "no worse"),
    ),
    Claim(
        "Hypothesis: a trainable additive mask makes a model better",
        "trainable masks",
        OURS,
        2,
        lambda: recipe_against_plain("additive_mask", "better"),
    ),
    Claim(
        "Hypothesis: a trainable multiplicative mask makes a model better",
        "trainable masks",
        OURS,
        2,
        lambda: recipe_against_plain("multiplicative_mask", "better"),
    ),
    Claim(
        "Hypothesis: a bias from the activations makes a model better",
        "in-context bias",
        OURS,
        3,
        lambda: recipe_against_plain("key_bias", "better"),
    ),
    Claim(
        "Hypothesis: a distance bias that knows rows and columns does no worse than positions",
        DISTANCE,
        OURS,
        7,
        grid_no_worse_than_positions,
    ),
    Claim(
        "Hypothesis: slopes set by hand, a side for each head, are better than slopes that start alike",
        DISTANCE,
        OURS,
        7,
        better_set_by_hand,
    ),
]
