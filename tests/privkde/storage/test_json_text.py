"""JSON of others: documents of the library pass, everything that two readers may understand differently is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import InvalidInputError
from privkde.storage.json_text import DEEPEST, LARGEST_FILE, MOST_DIGITS, MalformedJsonError, parsed_json, read_json

TEXTS = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers(-(2**100), 2**100) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
REFUSED = {
    b"": "Expecting value",
    b"{": "line 1, column 2",
    b"\xff": "UTF-8",
    b"\xef\xbb\xbf{}": "BOM",
    b'{"a": 1, "a": 2}': "same name twice",
    b'{"a": NaN}': "NaN",
    b'{"a": -Infinity}': "-Infinity",
    b'{"a": 1e999}': "too large",
    b'"\\ud800"': "surrogate",
    b'{"\\udfff": 1}': "surrogate",
    b"9" * 5_000: "5000 digits",
    b"9" * (MOST_DIGITS + 1): "41 digits",
    b"[" * 200_000: "deep",
    b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1): f"more than {DEEPEST} deep",
    b'{"a": ' * 900 + b"1" + b"}" * 900: "deep",
}


@given(VALUES)
def test_what_json_writes_is_read(value: object) -> None:
    assert parsed_json(json.dumps(value).encode()) == value


def test_limits_themselves_pass() -> None:
    digits, deepest = b"9" * MOST_DIGITS, b"[" * (DEEPEST - 1) + b"]" * (DEEPEST - 1)
    assert parsed_json(digits) == int(digits)
    assert parsed_json(deepest) == json.loads(deepest)


@pytest.mark.parametrize(("text", "word"), REFUSED.items(), ids=lambda value: str(value[:20]))
def test_other_texts_are_refused_in_one_line(text: bytes, word: str) -> None:
    with pytest.raises(MalformedJsonError, match=word) as caught:
        parsed_json(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 100


def test_a_file_is_named_with_the_remedy_and_its_text_is_not_shown(tmp_path: Path) -> None:
    place = tmp_path / "secret.json"
    place.write_text('{"salary": 70000, "salary": 80000}')
    with pytest.raises(InvalidInputError, match=r"secret\.json' is not JSON .* twice; write it again\.$") as caught:
        read_json(place, "write it again.")
    assert "salary" not in str(caught.value)


def test_a_file_is_not_read_beyond_the_limit(tmp_path: Path) -> None:
    place = tmp_path / "long.json"
    with place.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(MalformedJsonError, match="more than 1,048,576 bytes"):
        read_json(place, "write it again.")
