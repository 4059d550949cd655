"""The exercises of the course, one file a notebook: what is asked, on which inputs, and which mistakes are known."""

from functools import partial

from sciformer.check.exercise import Exercise
from sciformer.exercises import (
    additive_attention,
    bake_off,
    break_it,
    character_model,
    distance_bias,
    encoder_decoder,
    energy_wells,
    fast_attention,
    gpt,
    heads_that_copy,
    image_transformer,
    masked_images,
    multi_head,
    positions,
    random_search,
    scaled_dot_product,
    time_series,
    transformer_block,
    weighted_sums,
    welcome,
    your_own_score,
)
from sciformer.exercises.ways import ways_of

#: Every exercise of the course by name, in the order of the notebooks.
EXERCISES: dict[str, Exercise] = {
    exercise.name: exercise
    for module in (
        welcome,
        weighted_sums,
        scaled_dot_product,
        multi_head,
        positions,
        transformer_block,
        image_transformer,
        distance_bias,
        gpt,
        character_model,
        additive_attention,
        energy_wells,
        encoder_decoder,
        masked_images,
        time_series,
        random_search,
        fast_attention,
        bake_off,
        your_own_score,
        heads_that_copy,
        break_it,
    )
    for exercise in module.EXERCISES
}
for _exercise in EXERCISES.values():
    _exercise.ways = partial(ways_of, _exercise)
