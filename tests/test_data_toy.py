"""Toy tasks: what is asked and what is answered belong together, and splits never mix."""

import math
import re
from collections import Counter
from datetime import date

import pytest
import torch

from sciformer.data import (
    DATE_FORMS,
    FIRST_DAY,
    ISO_DATES,
    LAST_DAY,
    LETTERS,
    STORY_WORDS,
    WRITTEN_DATES,
    DateForm,
    clustered_tokens,
    dates,
    lookup,
    repeated_blocks,
    reversals,
    stories,
)


def test_lookup_answers_with_the_value_beside_the_key():
    keys, values, query, answer = lookup(500, seed=0, pairs=5, num_keys=7, num_values=3)
    assert keys.shape == values.shape == (500, 5)
    assert query.shape == answer.shape == (500,)
    for row_keys, row_values, asked, answered in zip(*(t.tolist() for t in (keys, values, query, answer)), strict=True):
        assert len(set(row_keys)) == 5
        assert row_values[row_keys.index(asked)] == answered
    assert set(keys.flatten().tolist()) == set(range(7))
    assert set(values.flatten().tolist()) == set(range(3))
    position = (keys == query[:, None]).int().argmax(dim=-1)
    assert position.bincount(minlength=5).min() > 60  # of 100 expected


def test_lookup_depends_on_its_seed_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again, other = lookup(20, seed=3), lookup(20, seed=3), lookup(20, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("sizes", [{"count": 0}, {"pairs": 0}, {"num_values": 0}, {"num_keys": 7}])
def test_lookup_refuses_impossible_sizes(sizes):
    with pytest.raises(ValueError, match="lookup needs 1 or more of everything and a key for each pair"):
        lookup(**{"count": 10, "seed": 0, **sizes})


def test_clustered_tokens_are_where_their_clusters_are():
    positions, labels, importance = clustered_tokens(400, seed=0, clusters=5, size=3, spread=0.1, high=2.5)
    assert (positions.shape, labels.shape, importance.shape) == ((400, 15, 2), (400, 15), (400, 15))
    assert labels[7].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    angle = 2 * math.pi * torch.arange(5) / 5
    plan = torch.stack((angle.cos(), angle.sin()), dim=-1)
    centres = positions.view(400, 5, 3, 2).mean(2)
    first = centres[:, 0] / centres[:, 0].norm(dim=-1, keepdim=True)
    turned = torch.stack(
        (
            first[:, 0, None] * plan[:, 0] - first[:, 1, None] * plan[:, 1],
            first[:, 1, None] * plan[:, 0] + first[:, 0, None] * plan[:, 1],
        ),
        dim=-1,
    )
    assert (centres - turned).norm(dim=-1).max() < 0.5
    around = positions.view(400, 5, 3, 2) - centres[:, :, None]
    assert (around.square().sum() / (400 * 5 * 2 * 2)).sqrt().item() == pytest.approx(0.1, rel=0.05)
    assert first.mean(0).norm() < 0.15  # turned every way
    by_cluster = importance.view(400, 5, 3)
    assert (by_cluster == by_cluster[:, :, :1]).all()
    assert ((by_cluster[..., 0] == 2.5).sum(1) == 2).all()
    assert ((by_cluster[..., 0] == 1).sum(1) == 3).all()
    assert (by_cluster[..., 0] == 2.5).float().mean(0).sub(0.4).abs().max() < 0.1


def test_clustered_tokens_depend_on_their_seed_alone():
    first, again, other = (clustered_tokens(3, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("sizes", [{"count": 0}, {"clusters": 1}, {"size": 0}])
def test_clustered_tokens_refuse_impossible_sizes(sizes):
    with pytest.raises(ValueError, match="clustered_tokens needs a set, 2 clusters and a token in each"):
        clustered_tokens(**{"count": 10, "seed": 0, **sizes})


def test_reversals():
    texts, reversed_texts = reversals(2000, seed=0, shortest=2, longest=5)
    assert all(text[::-1] == other for text, other in zip(texts, reversed_texts, strict=True))
    lengths = Counter(map(len, texts))
    assert set(lengths) == {2, 3, 4, 5}
    assert all(count == pytest.approx(500, abs=80) for count in lengths.values())
    assert set("".join(texts)) == set(LETTERS.characters[3:])
    assert max(len(set(text)) for text in reversals(200, seed=0, shortest=20, longest=20)[0]) == 5
    assert reversals(20, seed=3) == reversals(20, seed=3) != reversals(20, seed=4)
    for sizes in ({"count": 0}, {"shortest": 0}, {"shortest": 6, "longest": 5}):
        with pytest.raises(
            ValueError, match="reversals needs 1 string or more and 1 <= shortest <= longest, got count"
        ):
            reversals(**{"count": 10, "seed": 0, **sizes})


def test_dates_by_hand():
    day = date(1985, 3, 22)
    for form, written in [
        (DateForm(False, "dmy", "5", "March", " "), "22 March 1985"),
        (DateForm(True, "mdy", "5th", "MAR", ", "), "Fri MAR, 22nd, 1985"),
        (DateForm(False, "mdy", "05", "03", "/"), "03/22/1985"),
        (DateForm(False, "dmy", "5", "3", "."), "22.3.1985"),
        (DateForm(True, "ymd", "05", "Mar", "-"), "Fri 1985-Mar-22"),
    ]:
        assert form.write(day) == written
        assert form in DATE_FORMS
    form = DateForm(False, "dmy", "5th", "Mar", " ")
    ordinals = [form.write(date(2001, 1, n)).split()[0] for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 31)]
    assert ordinals == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "30th", "31st"]


def test_no_date_is_written_like_another():
    """A string of characters means one day, whichever form it was written in."""
    meaning: dict[str, date] = {}
    for day in (date(1905, 3, 5), date(1905, 5, 3), date(2005, 12, 11), date(2005, 11, 12), date(2010, 2, 1)):
        for form in DATE_FORMS:
            assert meaning.setdefault(form.write(day), day) == day


@pytest.mark.parametrize("days", ["train", "test"])
@pytest.mark.parametrize("forms", ["train", "test"])
def test_dates_are_what_they_say_and_keep_to_their_split(days, forms):
    written, iso = dates(3000, seed=0, days=days, forms=forms)
    kept = [form for n, form in enumerate(DATE_FORMS) if (n % 11 == 0) == (forms == "test")]
    for text, answer in zip(written, iso, strict=True):
        day = date.fromisoformat(answer)
        assert FIRST_DAY <= day <= LAST_DAY
        assert (day.toordinal() % 10 == 0) == (days == "test")
        assert any(form.write(day) == text for form in kept)
    assert set("".join(written)) <= set(WRITTEN_DATES.characters[3:])
    assert set("".join(iso)) == set(ISO_DATES.characters[3:])
    numeric = sum(re.fullmatch(r"([A-Z][a-z]{2} )?[\d./-]+", text) is not None for text in written)
    assert numeric == pytest.approx(2 / 5 * 3000, abs=120)
    assert sum(answer >= "2000" for answer in iso) == pytest.approx(1500, abs=120)


def test_what_is_new_in_a_form_kept_for_testing_is_how_it_is_put_together():
    known, kept = ([f for n, f in enumerate(DATE_FORMS) if (n % 11 == 0) == test] for test in (False, True))
    assert len(set(DATE_FORMS)) == len(DATE_FORMS) == len(known) + len(kept) == 294
    for field in DateForm._fields:
        assert {getattr(form, field) for form in kept} <= {getattr(form, field) for form in known}


def test_dates_depend_on_their_seed_alone():
    first, again, other = dates(20, seed=3), dates(20, seed=3), dates(20, seed=4)
    assert first == again != other
    assert set("".join(dates(20_000, seed=0)[0])) == set(WRITTEN_DATES.characters[3:])


def test_dates_refuse():
    with pytest.raises(ValueError, match="dates needs 1 date or more, got 0"):
        dates(0, seed=0)
    with pytest.raises(ValueError, match="days must be 'train' or 'test', got 'val'"):
        dates(1, seed=0, days="val")
    with pytest.raises(ValueError, match="forms must be 'train' or 'test', got 'new'"):
        dates(1, seed=0, forms="new")


def test_repeated_blocks_repeat_after_their_period_and_not_before():
    tokens, period = repeated_blocks(300, seed=0, length=17, vocab_size=11, shortest=3, longest=7)
    assert tokens.shape == (300, 17)
    assert (tokens.min(), tokens.max()) == (0, 10)
    assert set(period.tolist()) == {3, 4, 5, 6, 7}
    for row, p in zip(tokens, period.tolist(), strict=True):
        assert len(set(row[:p].tolist())) == p
        assert torch.equal(row[p:], row[:-p])
    assert torch.equal(tokens, repeated_blocks(300, seed=0, length=17, vocab_size=11, shortest=3, longest=7)[0])
    assert not torch.equal(tokens, repeated_blocks(300, seed=1, length=17, vocab_size=11, shortest=3, longest=7)[0])


@pytest.mark.parametrize("sizes", [{"shortest": 0}, {"longest": 49}, {"shortest": 33}, {"length": 0}])
def test_repeated_blocks_refuse_impossible_sizes(sizes):
    with pytest.raises(ValueError, match="1 <= shortest <= longest <= vocab_size, got count 10"):
        repeated_blocks(**{"count": 10, "seed": 0, **sizes})


def where_at_the_end(story):
    """Answer a story's question as a reader would."""
    *sentences, question = re.split(r" \. ", story)
    name = re.fullmatch(r"Where is (\w+) \?", question)[1]
    moves = [re.fullmatch(r"(\w+) \w+ to the (\w+)", sentence).groups() for sentence in sentences]
    return [place for person, place in moves if person == name][-1], len(moves), {person for person, _ in moves}


def test_stories_are_answered_by_where_one_was_last():
    texts, answers = stories(2000, seed=0, shortest=2, longest=6)
    assert len(texts) == len(answers) == 2000
    read = [where_at_the_end(text) for text in texts]
    assert [place for place, _, _ in read] == answers
    lengths = Counter(length for _, length, _ in read)
    assert set(lengths) == {2, 3, 4, 5, 6}
    assert all(count == pytest.approx(400, abs=70) for count in lengths.values())
    assert max(len(people) for _, _, people in read) == 4
    assert set(" ".join((*texts, *answers)).split()) == set(STORY_WORDS.characters[3:])
    assert all(count == pytest.approx(200, abs=50) for count in Counter(answers).values())
    last_places = [text.split(" .")[-2].split()[-1] for text in texts]
    not_the_last_place = sum(map(str.__ne__, answers, last_places))
    assert not_the_last_place > 800  # so that answering with the last place is not enough
    assert stories(20, seed=3) == stories(20, seed=3) != stories(20, seed=4)


@pytest.mark.parametrize("sizes", [{"count": 0}, {"shortest": 0}, {"shortest": 6, "longest": 5}])
def test_stories_refuse_impossible_sizes(sizes):
    with pytest.raises(ValueError, match="stories needs 1 story or more and 1 <= shortest <= longest, got count"):
        stories(**{"count": 10, "seed": 0, **sizes})
