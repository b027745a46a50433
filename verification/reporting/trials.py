"""The sections of the page that speak of the attempts: verdict, checks, witnesses, limits, environment."""

from __future__ import annotations

from html import escape

from verification.reporting.document import COULD_NOT_RUN, NOT_REFUTED, REFUTED, AuditReport, Result, environment
from verification.reporting.evidence import confirmation
from verification.reporting.markup import Markup, listed, table
from verification.reporting.wording import LAYERS, VERDICTS, counted, false_alarms, number, small
from verification.verdicts import FALSE_ALARM_RATE, Layer, NotRefuted, Refuted

Fields = dict[str, str]
_COLUMNS = [
    "check",
    "verdict",
    "found",
    "refuted beyond",
    "false alarm ≤",
    "power",
    "smallest defect seen",
    "seed",
    "seconds",
]
TITLES = {
    NOT_REFUTED: "Not refuted",
    REFUTED: "Refuted",
    COULD_NOT_RUN: "Incomplete: at least one check could not run",
}


def verdict_fields(report: AuditReport) -> Fields:
    """The verdict, in a box, and the numbers below it."""
    rate, confirmed = report.false_alarm_rate, confirmation(report)
    return {
        "verdict_kind": report.verdict,
        "verdict_title": TITLES[report.verdict],
        "verdict_text": escape(verdict_text(report)),
        "n_checks": counted(len(report.results), "check"),
        "false_alarm": f"≤ {small(rate)}" if rate else "no false alarms",
        "false_alarm_words": "chance that an honest system would be refuted"
        if rate
        else "an honest system is never refuted by these checks",
        "false_alarms": f"Of all checks together: {false_alarms(rate)} (allowed: {small(FALSE_ALARM_RATE)}).",
        "confirmed": escape(confirmed.answer),
        "confirmed_why": escape(confirmed.reason),
        "effort": report.effort.name,
        "partial": _partial(report),
    }


def verdict_text(report: AuditReport) -> str:
    """The verdict in a few sentences."""
    total, failed = counted(len(report.results), "check"), len(report.refuted)
    missing = sum(one.verdict == COULD_NOT_RUN for one in report.results)
    failure = "It did not succeed" if len(report.results) == 1 else "None succeeded"
    return {
        NOT_REFUTED: f"{total} tried to show that the promise is false, or that the program does not do what the"
        f" promise needs. {failure}. This is evidence, not a proof: the last sections say what was not covered.",
        REFUTED: f"{failed} of {total} found a contradiction. Do not rely on the promise. What was found, and how to"
        " see it again, is below.",
        COULD_NOT_RUN: f"{missing} of {total} stopped with an error. Nothing was refuted, but the evidence has a hole."
        " Do not treat this report as a pass.",
    }[report.verdict]


def _partial(report: AuditReport) -> str:
    if not report.left_out:
        return ""
    names = escape(", ".join(report.left_out))
    return f'<p class="banner"><b>Not a whole audit.</b> Left out by request: {names}.</p>'


def check_fields(report: AuditReport) -> Fields:
    """All checks, one table for each depth, and the witnesses."""
    parts: list[str] = []
    for layer in Layer:
        results = [one for one in report.results if one.layer is layer]
        if results:
            caption = f"{str(layer).capitalize()}: {LAYERS[layer]}"
            rows = [row for one in results for row in (_line(one), _small_print(one))]
            parts.append(table(caption, _COLUMNS, rows, kind="checks"))
        if results and layer is Layer.CERTIFIED:
            confirmed = confirmation(report)
            parts.append(
                f"<p><b>Confirmed from above: {escape(confirmed.answer)}</b> ({escape(confirmed.reason)}).</p>"
            )
    unused = ""
    if report.not_applicable:
        names = escape(", ".join(report.not_applicable))
        unused = f'<p class="soft">Nothing to say about a plan of this kind: {names}.</p>'
    return {"check_tables": "\n".join(parts) + unused, "witnesses": _witnesses(report)}


def _line(result: Result) -> list[str]:
    title = f"<b>{escape(result.about)}</b><br><code>{escape(result.name)}</code>"
    found, kind = result.finding, {REFUTED: "bad", COULD_NOT_RUN: "hole"}.get(result.verdict, "good")
    seconds = f"{result.seconds:.1f}"
    if found is None:
        stopped = f"stopped: {result.error}"
        return [Markup(title), VERDICTS[result.verdict], stopped, "—", "—", "—", "—", str(result.seed), seconds, kind]
    verdict = found.verdict
    power = number(verdict.power) if isinstance(verdict, NotRefuted) else "—"
    defect = number(verdict.smallest_detectable_defect) if isinstance(verdict, NotRefuted) else "—"
    return [
        Markup(title),
        VERDICTS[result.verdict],
        number(found.statistic),
        number(found.bound),
        number(found.alpha),
        power,
        defect,
        "—" if found.seed is None else str(found.seed),
        seconds,
        kind,
    ]


def _small_print(result: Result) -> Markup:
    """Claim and note, over the whole width."""
    found = result.finding
    text = "" if found is None else f'{escape(found.claim)} <span class="soft">{escape(found.note)}</span>'
    return Markup(f'<tr class="note"><td colspan="{len(_COLUMNS)}">{text}</td></tr>')


def _witnesses(report: AuditReport) -> str:
    shown = []
    for result in report.results:
        if result.verdict == NOT_REFUTED:
            continue
        replay = f"<pre>{escape(report.replay(result))}</pre>"
        if result.finding is None or not isinstance(result.finding.verdict, Refuted):
            text = f"<p>It stopped with an error of type <code>{escape(result.error or 'unknown')}</code>.</p>"
        else:
            witness = result.finding.verdict.witness
            values = ", ".join(f"{name} = {value:.6g}" for name, value in witness.numbers.items())
            text = (
                f"<p><b>The claim:</b> {escape(result.finding.claim)}</p>"
                f"<p><b>What was found:</b> {escape(witness.found)}</p><p class=soft>{escape(values)}</p>"
            )
        heading = f"<h3>{escape(result.about)} <code>{escape(result.name)}</code></h3>"
        shown.append(f'<div class="witness">{heading}{text}<p>See it again:</p>{replay}</div>')
    return "\n".join(shown)


def ending_fields(report: AuditReport) -> Fields:
    """Machine, versions, seeds, hash and times."""
    machine = environment()
    versions = ", ".join(f"{name} {value}" for name, value in machine["packages"].items() if value)
    rows = [
        ["plan (SHA-256)", Markup(f"<code>{report.plan_sha256}</code>")],
        ["seed of the audit", str(report.seed)],
        ["effort", f"{report.effort.name}, {counted(report.workers, 'process')}"],
        ["started", report.started],
        ["took", f"{report.seconds:.1f} s"],
        ["privkde", machine["privkde"]],
        ["Python", machine["python"]],
        ["packages", versions],
        ["machine", f"{machine['platform']}, {counted(machine['cores'] or 1, 'core')}"],
    ]
    return {
        "environment_table": table("Needed to repeat this audit", ["what", "value"], rows, kind="facts"),
        "limits": listed(limits(report)),
        "command": escape(report.command()),
        "version": machine["privkde"],
    }


def limits(report: AuditReport) -> list[str]:
    """What nobody should read into a pass."""
    limits = [
        "No check proves anything: a verdict is “refuted” or “not refuted”.",
        f"False alarms, of all checks of this audit together: {false_alarms(report.false_alarm_rate)}.",
        "Enumeration and attacks run on miniatures: plans of the same kind for few people and few bits, made by the"
        " same planner. Only the certified checks speak of the plan's own numbers at its own size.",
        "An attack shows how much is lost at least; the proof says how much at most. What lies between is not known.",
        "A defect smaller than the “smallest defect seen” of a check may pass it; where its power is a dash, any may.",
        "The audit runs this program on this machine. It does not see the devices, the shuffler or the network of a"
        " real collection.",
    ]
    if report.effort.name == "quick":
        limits.append("This was a quick audit; `--full` draws ten times as many samples.")
    return limits
