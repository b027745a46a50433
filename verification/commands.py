"""The commands of this package: `privkde.commands` is the entry point that finds them."""

from privkde.cli.commands import Command

EXIT_REFUTED = 1
READER_LEFT = (BrokenPipeError, SystemExit)
"""A closed pipe must not change the verdict: rich would exit with 1, "refuted"."""

COMMANDS = (
    Command("verify", "prove a plan's promise in ball arithmetic", "verification.verify_command:add_verify"),
    Command("audit", "try to refute a plan's promise, and report", "verification.audit_command:add_audit"),
)
