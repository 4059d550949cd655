"""The form of what is read from a JSON file: which fields there are, and of what kind each one is.

A form is written down as an example is: ``{"seed": int, "curves": {str: [(int, float)]}}`` is an object with a whole
number and with curves of any names, each a list of pairs. ``float`` is any finite number, ``object`` anything at all; a
field whose name ends in ``?`` may be missing or null; further fields may stand beside those that are named.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sciformer.data.files import check_regular
from sciformer.functional import InputError

Form = Any


def read_json(path: Path, form: Form) -> Any:
    """What a JSON file holds.

    Raises:
        InputError: if it is no JSON, or has not the form; names the first field that has not.
        OSError: if it cannot be read.
    """
    check_regular(path)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{type(error).__name__}: {error}") from error
    for misfit in misfits(content, form):
        raise InputError(misfit)
    return content


def misfits(value: Any, form: Form, name: str = "it") -> Iterator[str]:
    """Each part of a value that has not the form, in words."""
    parts: list[tuple[str, Any, Form]] = []
    if isinstance(form, type):
        right = form is object or (_is_number(value) if form is float else type(value) is form)
        wanted = {float: "a finite number", int: "a whole number", str: "a text", bool: "true or false"}.get(form, "")
    elif isinstance(form, dict):
        right, wanted = isinstance(value, dict), "an object"
        if right:
            yield from (f"{name} has no {field}" for field in form if _is_needed(field) and field not in value)
            parts = [(field, content, _form_of(field, content, form)) for field, content in value.items()]
    else:  # a list of any length, or a tuple
        right = isinstance(value, list) and (isinstance(form, list) or len(value) == len(form))
        wanted = "a list" if isinstance(form, list) else f"a list of {len(form)}"
        if right:
            forms = form * len(value) if isinstance(form, list) else form
            parts = [(f"[{n}]", *both) for n, both in enumerate(zip(value, forms, strict=True))]
    if not right:
        yield f"{name} is not {wanted} but {json.dumps(value)[:40]}"
    for part, content, own in parts:
        yield from misfits(content, own, part if name == "it" else f"{name}{'' if part[0] == '[' else '.'}{part}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # NaN is not


def _is_needed(field: Any) -> bool:
    return isinstance(field, str) and not field.endswith("?")


def _form_of(field: str, content: Any, form: dict[Any, Form]) -> Form:
    if field in form:
        return form[field]
    maybe = form.get(f"{field}?", form.get(str, object))
    return object if content is None and f"{field}?" in form else maybe
