"""Names of the code on pages: what the build imports, what the code itself says of it, and the paper's symbols."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib import import_module
from typing import Any

import griffe
from accounting import PlanRequest
from accounting.fields import fields_of

from guide.pages import PageError
from guide.writing import table

REQUEST = "accounting.request.PlanRequest."
"""Fields of a request are described in a table of their own, which the command line shows, too."""

_FACTS = "accounting.kernels.KernelFacts."
_THREE = "accounting.mechanisms.three_negative_binomial.ThreeNegativeBinomial."
_PURE = "accounting.mechanisms.pure.Pure."

PEOPLE = (
    ("n", f"{REQUEST}users"),
    ("", "accounting.mechanisms.bitsum_protocol.BitsumProtocol.n_users"),
    ("n_min", f"{REQUEST}min_users"),
    ("d", f"{REQUEST}dim"),
    ("m", f"{REQUEST}classes"),
    ("Π_R", "privkde.protocol.parties.Randomizer"),
    ("Π_S", "privkde.protocol.parties.Shuffler"),
    ("Π_A", "privkde.protocol.parties.Analyzer"),
)
PRIVACY = (
    ("ε", f"{REQUEST}epsilon"),
    ("δ", f"{REQUEST}delta"),
    ("ε₀", "accounting.plan.Plan.epsilon_0"),
    ("δ₀", "accounting.plan.Plan.delta_0"),
    (
        "δ′",
        "accounting.composition.advanced.advanced_epsilon",
        "its argument `slack_delta`: what advanced composition spends itself",
    ),
    ("ε_lbl", f"{REQUEST}label_epsilon"),
    ("c̃", "privkde.protocol.label_round.randomize_labels"),
    ("ñ_c", "privkde.protocol.model.DensityModel.sizes"),
)
KERNEL = (
    ("k(x, y)", "privkde.kernels.lsq_family.LsqFamily.kernel"),
    ("h", "privkde.kernels.lsq_family.KernelChoice.bandwidth"),
    ("(f_i, g_i)", "privkde.kernels.lsq_family.LsqFamily"),
    ("f_i(x)", "privkde.kernels.lsq_family.LsqFamily.scaled_features"),
    ("g_i(y)", "privkde.kernels.lsq_family.LsqFamily.query_features"),
    ("I", f"{REQUEST}repetitions"),
    ("", f"{_FACTS}n_repetitions"),
    ("Q", f"{_FACTS}n_coordinates"),
    ("R", f"{_FACTS}bound"),
    ("", f"{REQUEST}bound"),
    ("S", f"{_FACTS}sparsity"),
    ("β", f"{_FACTS}bias"),
    ("", f"{REQUEST}bias"),
)
BITSUM = (
    ("Π", "accounting.mechanisms.bitsum_protocol.BitsumProtocol"),
    ("", "privkde.bitsum.execution.Bitsum"),
    ("b_ij", "privkde.bitsum.execution.Bitsum.respond"),
    ("Γ̃", "privkde.protocol.messages.Counted"),
    ("B̃_ij", "privkde.bitsum.execution.Bitsum.estimate"),
    ("F̃_ij", "privkde.protocol.parties.Analyzer.sums"),
    ("K̃_c(y)", "privkde.protocol.model.DensityModel.densities"),
    ("KDE_X(y)", "privkde.learning.baselines.exact_densities"),
    ("𝓔_Π", "accounting.mechanisms.bitsum_protocol.BitsumProtocol.rmse"),
    ("supRMSE", "accounting.accuracy.density_error.sup_error_bound"),
    ("p_RR", "accounting.mechanisms.randomized_response.RandomizedResponse.flip_probability"),
    ("NB(r, p)", "privkde.draws.laws.NegativeBinomial"),
    ("ψ₁, ψ₂, ψ₃", "privkde.bitsum.three_negative_binomial.ThreeNegativeBinomialBitsum.noise"),
    ("r", f"{_THREE}noise_shape"),
    ("p", f"{_THREE}continue_probability"),
    ("r′", f"{_THREE}flood_shape"),
    ("p′", f"{_THREE}flood_continue_probability"),
)
OURS = (
    ("H_γ(P‖Q)", "accounting.numerics.profile.Pair.hockey_stick"),
    ("A₁, A₀", "accounting.mechanisms.bitsum_protocol.BitsumProtocol.pairs"),
    ("δ(ε)", "accounting.mechanisms.bitsum_protocol.BitsumProtocol.delta"),
    ("k", "accounting.composition.rung.Touched.total"),
    (
        "t_i",
        "accounting.composition.rung.Touched",
        "how far a change of record moves the probability of bit i",
    ),
    ("Δ²", f"{_FACTS}squared_shift"),
    ("T", f"{_FACTS}largest_shift"),
    ("w", f"{_FACTS}size_weight"),
    ("ε_loc", "accounting.mechanisms.bitsum_protocol.BitsumProtocol.local_guarantee"),
    ("σ_max", "privkde.kernels.inner_product.SignFamily.squared_shift"),
    ("σ", "privkde.kernels.projection.distortion_bound"),
    ("ε′", f"{_PURE}noise_epsilon"),
    ("q", f"{_PURE}silence_probability"),
    ("s", f"{_PURE}base_messages"),
    ("r", f"{_PURE}flood_shape"),
    ("p_f", f"{_PURE}flood_continue_probability"),
)


def linked(name: str, *, short: bool = False) -> str:
    """A dotted name that exists, as a link to where the reference describes it; if short, without its module."""
    found(name)
    parts = name.removeprefix(f"{_module(name)}.").split(".") if short else name.split(".")
    return f'<autoref identifier="{_anchor(name)}">{code(".<wbr>".join(escape(part) for part in parts))}</autoref>'


def code(html: str) -> str:
    """Code that breaks between words only, even in a narrow table."""
    return f'<code style="word-break: normal">{html}</code>'


def found(name: str) -> Any:
    """What a dotted name stands for; ends the build if it stands for nothing."""
    above = _module(name)
    value: Any = import_module(above)
    for part in name.removeprefix(above).split(".")[1:]:
        if not hasattr(value, part) and part not in _fields(value):
            raise PageError(f"{name!r} does not exist: {above!r} has no {part!r}.")
        value, above = getattr(value, part, None), f"{above}.{part}"
    return value


def _module(name: str) -> str:
    """The longest beginning of a dotted name that can be imported."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            import_module(module)
        except ModuleNotFoundError:
            continue
        return module
    raise PageError(f"{name!r} does not exist.")


def _fields(value: Any) -> set[str]:
    """Fields without a default are no attributes of their class."""
    return {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()


def _anchor(name: str) -> str:
    """The nearest name, up from this one, that the reference shows: it leaves out what has no docstring."""
    while not _docstring(name):
        name = name.rpartition(".")[0]
    return name


@cache
def _package(name: str) -> griffe.Object | griffe.Alias:
    return griffe.load(name)


def _docstring(name: str) -> str:
    package, _, rest = name.partition(".")
    if not rest:
        return "a package"
    told: griffe.Object | griffe.Alias = _package(package)
    for part in rest.split("."):
        told = told.all_members[part]
    return "" if told.docstring is None else told.docstring.value


def meaning(name: str) -> str:
    """What the code says of a name, in its first sentence; nothing if it says nothing."""
    if name.startswith(REQUEST):
        return fields_of(PlanRequest)[name.removeprefix(REQUEST)].rule.description
    first = " ".join(_docstring(name).split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.;])\s(?=[A-Z])", first)[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:] if re.match(r"[A-Z][a-z]+\b", sentence) else sentence


def symbols(listed: Iterable[tuple[str, ...]]) -> None:
    """Print a table of (symbol, name) or (symbol, name, words): these words, else what the code says of the name."""
    rows = []
    for letter, name, *words in listed:
        told = " ".join(words) or meaning(name)
        if not told:
            raise PageError(f"nothing is said of {letter!r}: {name!r} has no docstring.")
        rows.append([letter, linked(name, short=True), told])
    table(["symbol", "in the code", "meaning"], rows)


def members(name: str) -> None:
    """Print a table of the members of an enumeration, in the words of the code."""
    kind = found(name)
    rows = [
        [code(escape(one.value)), linked(f"{name}.{one.name}", short=True), meaning(f"{name}.{one.name}")]
        for one in kind
    ]
    table(["value", "in the code", "meaning"], rows)
