"""Fields of a request, each declared once.

A record is a frozen dataclass whose annotations hold a `Rule`: `users: Annotated[int, Rule(...)]`. Python signatures,
command-line flags, checks over HTTP, the OpenAPI document, the planner page and the reference follow from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from accounting.errors import InvalidInputError, require_choice, require_integer, require_real, shown

T = TypeVar("T")
_IN_WORDS = {bool: "true or false", str: "a text", dict: "an object"}


@dataclass(frozen=True, slots=True)
class Rule:
    """What is declared of a field beside its name, type and default."""

    description: str
    low: float | None = None
    high: float | None = None
    _: KW_ONLY
    above_low: bool = False
    """Whether `low` itself is refused."""
    choices: Collection[str] = dataclasses.field(default=(), hash=False)
    """A registry may grow, so it is read when it is needed."""
    unset: str = ""
    """What is used if nothing is given, in words; for fields whose default is None."""
    share: bool = False
    """Whether a value below 1 is a share and any other a whole number; a command line also takes percentages."""
    optional: bool = False
    """Whether documents leave the field out where it has its default, as those did that were written before it."""
    most: int | None = None
    """Items of a list; longer ones are refused before any item is looked at."""

    def json_schema(self) -> dict[str, Any]:
        """The rule in the words of JSON Schema."""
        least = "exclusiveMinimum" if self.above_low else "minimum"
        rules = {"enum": list(self.choices), least: self.low, "maximum": self.high, "x-unset": self.unset}
        rules["maxItems"] = self.most
        stated = {key: value for key, value in rules.items() if value not in (None, "", [])}
        return {"description": self.description, **stated}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Pydantic calls this where it describes a record, so that it needs no declaration of its own."""
        return {**handler(schema), **self.json_schema()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record."""

    name: str
    annotation: Any
    kind: Any
    """The type without `None`: int, float, bool, str, dict, another record, or a tuple of records."""
    default: Any
    """`dataclasses.MISSING` if the field is required."""
    rule: Rule
    record: Any
    """The record that a value is, or each item of a list; None if it is neither."""

    @property
    def required(self) -> bool:
        """Whether a value must be given."""
        return self.default is dataclasses.MISSING

    @property
    def default_in_words(self) -> str:
        """The default for people; empty if there is nothing to say."""
        return self.rule.unset if self.required or self.default is None else str(self.default)

    def checked(self, value: Any) -> Any:
        """The value in the field's type, or an `InvalidInputError`; None passes where it is the default."""
        if value is None and self.default is None:
            return None
        if self.record is None:
            return self._checked_value(value)
        if self.kind is not self.record:
            if not isinstance(value, (list, tuple)):
                raise InvalidInputError(f"{self.name}={shown(value)} must be a list: {self.rule.description}.")
            if self.rule.most is not None and len(value) > self.rule.most:
                raise InvalidInputError(f"{self.name} has {len(value):,} items; give {self.rule.most:,} at most.")
            return tuple(read(self.record, item, self.name) for item in value)
        return read(self.record, value, self.name)

    def _checked_value(self, value: Any) -> Any:
        rule = self.rule
        if rule.choices:
            return require_choice(self.name, value, rule.choices)
        if self.kind is int:
            return require_integer(self.name, value, low=int(rule.low or 0), high=int(rule.high or 0))
        if self.kind is float:
            number = require_real(self.name, value, low=rule.low or 0.0, high=rule.high or 0.0, low_open=rule.above_low)
            if rule.share and number >= 1.0 and not number.is_integer():
                raise InvalidInputError(
                    f"{self.name}={shown(value)} is neither a share below 1 nor a whole number; give one."
                )
            return number
        if not isinstance(value, self.kind):
            raise InvalidInputError(f"{self.name}={shown(value)} must be {_IN_WORDS[self.kind]}: {rule.description}.")
        return value


def fields_of(record: type) -> Mapping[str, Field]:
    """The declared fields of a record by name, in the order of their declaration."""
    key: Any = record
    return _fields_of(key)


@cache
def _fields_of(record: Any) -> Mapping[str, Field]:
    hints = get_type_hints(record, include_extras=True)
    return {field.name: _field(field, hints[field.name]) for field in dataclasses.fields(record)}


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    annotation, *_, rule = get_args(hint)
    kind = annotation
    if isinstance(annotation, UnionType):
        (kind,) = (part for part in get_args(annotation) if part is not type(None))
    kind = dict if get_origin(kind) is dict else kind
    item = get_args(kind)[0] if get_origin(kind) is tuple else kind
    record = item if dataclasses.is_dataclass(item) else None
    return Field(name=field.name, annotation=annotation, kind=kind, default=field.default, rule=rule, record=record)


class Record:
    """A dataclass whose fields are declared with a `Rule` and checked by it."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_fields(self)


def check_fields(record: Any) -> None:
    """Check every field of a new record by its rule; 2 becomes 2.0, so that equal requests have equal documents."""
    for field in fields_of(type(record)).values():
        object.__setattr__(record, field.name, field.checked(getattr(record, field.name)))


def stated(record: Any) -> dict[str, Any]:
    """The values of a record's fields by name, for a document: without optional ones that have their default."""
    fields = fields_of(type(record)).values()
    values = ((field, getattr(record, field.name)) for field in fields)
    return {field.name: value for field, value in values if not (field.rule.optional and value == field.default)}


def read(record: type[T], values: Any, name: str = "request") -> T:
    """A record from named values, where None means not given.

    Raises `InvalidInputError` for a name that is unknown or missing. `name` is what an error calls the record.
    """
    fields = fields_of(record)
    if isinstance(values, record):
        return values
    if not isinstance(values, Mapping):
        raise InvalidInputError(f"{name}={shown(values)} must be an object with {', '.join(fields)}.")
    for given in values:
        if given not in fields:
            require_choice(f"name of a {name}", given, fields)
    present = {key: value for key, value in values.items() if value is not None}
    for field in fields.values():
        if field.required and field.name not in present:
            raise InvalidInputError(f"{field.name} is missing; give it: {field.rule.description}.")
    return record(**present)
