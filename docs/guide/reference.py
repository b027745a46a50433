"""What the reference is made of: exported names, modules, commands and endpoints, each from the code itself."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from accounting.fields import fields_of

from guide.execution import COLUMNS
from guide.pages import PageError
from guide.writing import in_words, table

DOCS = Path(__file__).parents[1]
PLAN_PARTS = (
    "Baseline", "Communication", "Contract", "Error", "Evidence", "Guarantee", "Instance", "Ladder", "Plan",
    "PredictedError",
)  # fmt: skip
CERTIFICATE_PARTS = ("Certificate", "Claim", "Moved", "MovedBits", "Proved")
ELSEWHERE = dict.fromkeys(PLAN_PARTS, "plans.md") | dict.fromkeys(CERTIFICATE_PARTS, "certificates.md")
"""Schemas that another page describes."""
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}
_KINDS = {"integer": "whole number", "string": "text", "boolean": "true or false", "null": "`null`"}
_DEFAULT = re.compile(r"\s*\(default: ([^()]*)\)")


def exported(package: str) -> None:
    """Print a table of what can be imported from the package itself, linked to where the page describes it."""
    rows = []
    for name in sorted(import_module(package).__all__, key=str.lower):
        found = getattr(import_module(package), name)
        is_value = not (isinstance(found, type) or inspect.isroutine(found))
        described = type(found) if is_value else found
        link = f"#{described.__module__}.{described.__name__}"
        about = (inspect.getdoc(described) or "").split("\n\n")[0]
        words = f"`{found!r}`" if is_value else " ".join(about.split())
        rows.append([f'<span id="{package}.{name}"></span>[`{name}`]({link})', words])
    table(["name", "what it is"], rows)


def require_modules(package: str, page: str, *, internal: Iterable[str]) -> None:
    """End the build unless each module of a package is on the page, is internal, or lies in an internal `package.*`."""
    hidden = tuple(internal)
    folders = tuple(one.removesuffix("*") for one in hidden if one.endswith(".*"))
    found = {one.name for one in walk_packages(import_module(package).__path__, f"{package}.")}
    modules = {name for name in found if name not in hidden and not f"{name}.".startswith(folders)}
    text = (DOCS / page).read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE))
    if modules != shown:
        raise PageError(f"{page}: missing {sorted(modules - shown)}, unknown {sorted(shown - modules)}.")


def commands(parser: argparse.ArgumentParser, level: int = 2) -> None:
    """Print usage and options of every command below a parser."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {one.dest: one.help for one in action._choices_actions}
        for name, command in action.choices.items():
            print(f"\n{'#' * level} {command.prog}\n")
            told = command.description or helps.get(name) or ""
            print(told[:1].upper() + told[1:] + ("" if told.endswith(".") else "."))
            inner = [one for one in command._actions if isinstance(one, argparse._SubParsersAction)]
            if not inner:
                print(f"\n```text\n{_usage(command)}\n```\n")
                table(["option", "meaning", "default"], [_option(command, one) for one in _visible(command)])
            commands(command, level + 1)


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=COLUMNS)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    return formatter.format_help().strip()


def _visible(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    shown = [one for one in parser._actions if one.help is not argparse.SUPPRESS and one.dest != "help"]
    return sorted(shown, key=lambda one: bool(one.option_strings))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    """Name, meaning and default of one option."""
    value = _value(action)
    names = action.option_strings or [value]
    words = ", ".join(f"`{name} {value}`" if action.option_strings and value else f"`{name}`" for name in names)
    told = (action.help or "") % {**vars(action), "prog": parser.prog}
    stated = _DEFAULT.search(told)
    return [words, _DEFAULT.sub("", told), stated[1] if stated else _default(parser, action)]


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return " or ".join(str(one) for one in action.choices)
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return name.replace("|", " or ") + (" …" if action.nargs == "+" else "")


def _default(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    for group in parser._mutually_exclusive_groups:
        if group.required and action in group._group_actions:
            return "one of these is required"
    if action.required:
        return "required"
    if action.nargs == 0:
        return "off"
    return "—" if action.default in (None, [], argparse.SUPPRESS) else str(action.default)


def declared(record: type, **flags: str) -> None:
    """Print a table of the fields of a record: flag (its name unless another is given), meaning, values and default."""
    rows = []
    for field in fields_of(record).values():
        values = _type({"type": _TYPES[field.kind], **field.rule.json_schema()})
        default = "required" if field.required else field.default_in_words
        shown = "off" if field.default is False else default if field.default is None else f"`{default}`"
        flag = flags.get(field.name, field.name).replace("_", "-")
        rows.append(
            [f"`--{flag}`<br>`{field.name}`", field.rule.description, values, default if field.required else shown]
        )
    table(["option, Python name", "meaning", "values", "default"], rows)


def endpoints(document: Mapping[str, Any], tag: str) -> None:
    """Print what an OpenAPI document says of the operations that have this tag."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if tag in operation["tags"]:
                _endpoint(method, path, operation)


def _endpoint(method: str, path: str, operation: Mapping[str, Any]) -> None:
    print(f"\n### {method.upper()} {path}\n\n**{operation['summary']}.** {operation['description']}\n")
    answers = operation["responses"]
    success = next(status for status in answers if status.startswith("2"))
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "header":
            print(f"- header: `{parameter['name'].title()}`")
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None:
        print(f"- request: {_type(body['schema'])}")
    print(f"- answer: {success}, {_type(answers[success]['content']['application/json']['schema'])}")
    print(f"- problems: {', '.join(status for status in answers if not status.startswith('2'))}\n")
    for example in (body or {}).get("examples", {}).values():
        print(f"```json\n{json.dumps(example['value'], ensure_ascii=False)}\n```\n")


def requests(document: Mapping[str, Any]) -> None:
    """Print a table of the members of every request of an OpenAPI document: schemas that allow no other members."""
    for name, schema in document["components"]["schemas"].items():
        if schema.get("additionalProperties") is False:
            print(f"\n### {name}\n")
            rows = [_member(member, inner, schema) for member, inner in schema["properties"].items()]
            width = 4 if any(row[3] for row in rows) else 3
            table(["member", "type", "default", "meaning"][:width], [row[:width] for row in rows])


def _member(name: str, schema: Mapping[str, Any], parent: Mapping[str, Any]) -> list[str]:
    default = schema.get("x-unset") or (f"`{json.dumps(schema['default'])}`" if "default" in schema else "—")
    given = "required" if name in parent["required"] else default
    return [f"`{name}`", _type(schema), given, schema.get("description", "")]


def answers(document: Mapping[str, Any]) -> None:
    """Print one table of the members of every answer of an OpenAPI document, except those described elsewhere."""
    rows = [
        [f'<span id="{name.lower()}"></span>{name}', ", ".join(f"`{member}`" for member in schema["properties"])]
        for name, schema in document["components"]["schemas"].items()
        if "properties" in schema and schema.get("additionalProperties") is not False and name not in ELSEWHERE
    ]
    table(["answer", "members"], rows)


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in words; null, which means that nothing is given, is left out."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}]({ELSEWHERE.get(name, '#' + name.lower())})"
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if choices:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in choices)
    if "anyOf" in schema:
        rules = {name: rule for name, rule in schema.items() if name != "anyOf"}
        return " or ".join(_type({**rules, **part}) for part in schema["anyOf"] if part != {"type": "null"})
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    return _KINDS.get(schema["type"], str(schema["type"])) + _range(schema)


def _range(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if low is None or high is None:
        return ""
    return f", {'above ' if 'exclusiveMinimum' in schema else ''}{in_words(low)} to {in_words(high)}"
