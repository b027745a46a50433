"""The commands of this package: `privkde.commands` is the entry point that finds them."""

from privkde.cli.commands import Command

COMMANDS = (Command("audit", "try to refute a plan's promise, and report", "verification.audit_command:add_audit"),)
