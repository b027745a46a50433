"""Signals that ask a command to end: they become an exception, so that everything temporary is cleaned up."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDED_BY_SIGNAL = 128
"""Exit code of a command that a signal ended, less the number of the signal."""
_NAMES = ("INT", "TERM", "HUP", "QUIT", "ABRT", "TRAP", "SYS", "XCPU", "XFSZ", "ALRM", "VTALRM", "PROF", "USR1", "USR2")
_NAMES_OF_SOME_SYSTEMS = ("POLL", "PWR", "STKFLT")
_REAL_TIME = range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if hasattr(signal, "SIGRTMIN") else ()
SIGNALS: tuple[int, ...] = (
    *(getattr(signal, f"SIG{name}") for name in _NAMES + _NAMES_OF_SOME_SYSTEMS if hasattr(signal, f"SIG{name}")),
    *_REAL_TIME,
)
"""Those that would end a process at once, unless nobody can catch them or a wrong instruction would repeat them."""
SECONDS_TO_END = 10.0
"""Cleaning up may take this long: Beam can wait for ever for workers that wait for it."""
_USUAL = (signal.SIG_DFL, signal.default_int_handler)


class Interrupted(KeyboardInterrupt):
    """A signal asks the command to end."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"interrupted by {name_of(self.number)}"


def name_of(number: int) -> str:
    """What a signal is called; most of those for real time have no name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


@contextmanager
def interruptible() -> Iterator[None]:
    """The first of these signals raises `Interrupted` in the main thread; further ones do not disturb the cleaning up.

    Nor is anything shown of it: libraries would print a traceback, and may make an error of their own of the exception.
    A signal that somebody else handles or ignores (`nohup`) is left alone.
    """
    if threading.current_thread() is not threading.main_thread():  # no other thread may handle signals
        yield
        return
    before, shown = {number: signal.getsignal(number) for number in SIGNALS}, sys.stderr
    ours = [number for number in SIGNALS if before[number] in _USUAL]
    received: list[int] = []
    patience = threading.Timer(SECONDS_TO_END, lambda: _give_up(received[0]))
    patience.daemon = True

    def end(number: int, _: object) -> None:
        received.append(number)
        for other in ours:
            signal.signal(other, signal.SIG_IGN)
        sys.stderr = io.StringIO()
        logging.disable()
        patience.start()
        raise Interrupted(number)

    try:
        for number in ours:
            signal.signal(number, end)
        yield
    except Exception as error:
        if received:
            raise Interrupted(received[0]) from error
        raise
    finally:
        patience.cancel()
        sys.stderr = shown
        if received:
            logging.disable(logging.NOTSET)
        for number in ours:
            signal.signal(number, before[number])


def _give_up(number: int) -> None:
    """End at once; of what is temporary, files of users' data are deleted first."""
    from privkde.storage.files import delete_private_files  # `--help` does without it

    delete_private_files()
    os.write(2, f"privkde: {Interrupted(number)}, before everything temporary was deleted\n".encode())
    os._exit(ENDED_BY_SIGNAL + number)
