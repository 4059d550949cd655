"""What is read from a JSON file has the form that was written, or is refused with the name of what has not."""

import json

import pytest

from sciformer.functional import InputError
from sciformer.lab.forms import misfits, read_json

FORM = {
    "n": int,
    "x": float,
    "t": str,
    "b": bool,
    "curves": {"loss": [(int, float)], str: [(int, float)]},
    "more?": str,
}
WHOLE = {"n": 1, "x": 2, "t": "", "b": True, "curves": {"loss": [[1, 0.5]], "other": []}, "more": None, "beside": [1]}


def test_what_has_the_form_has_no_misfit():
    assert list(misfits(WHOLE, FORM)) == []
    assert list(misfits({key: value for key, value in WHOLE.items() if key not in ("more", "beside")}, FORM)) == []
    assert list(misfits([[], {}, None], [object])) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 1.0}, "n is not a whole number but 1.0"),
        ({"n": True}, "n is not a whole number but true"),
        ({"x": float("nan")}, "x is not a finite number but NaN"),
        ({"x": 10**400}, "x is not a finite number but 1000"),
        ({"x": "2"}, 'x is not a finite number but "2"'),
        ({"t": None}, "t is not a text but null"),
        ({"b": 1}, "b is not true or false but 1"),
        ({"more": 1}, "more is not a text but 1"),
        ({"curves": []}, "curves is not an object but []"),
        ({"curves": {}}, "curves has no loss"),
        ({"curves": {"loss": {}}}, "curves.loss is not a list but {}"),
        ({"curves": {"loss": [[1, 2.0], [1]]}}, "curves.loss[1] is not a list of 2 but [1]"),
        ({"curves": {"loss": [], "a": [[1, "x"]]}}, 'curves.a[0][1] is not a finite number but "x"'),
    ],
)
def test_what_has_not_the_form_is_named(tmp_path, change, message):
    path = tmp_path / "file.json"
    path.write_text(json.dumps(WHOLE | change))
    with pytest.raises(InputError) as raised:
        read_json(path, FORM)
    assert message in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}", b"[" * 100_000, b"null", b"9" * 5000])
def test_what_is_no_json_is_refused(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_json(path, FORM)
