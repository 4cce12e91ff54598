"""What goes wrong inside a command's own process: a kill, or a full disk, at its n-th write into its folder.

A write is whatever changes the folder: a file opened for writing, a folder made, a name changed or removed (Python's
audit events), and a file that torch or safetensors writes without Python. Needs no rights and no file system of its
own: the kernel refuses to let files grow (RLIMIT_FSIZE), or the audit hook raises the system's own error.
"""

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CREATES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NATIVE = "native"
# kill: before the write. torn: the kernel ends the process within it. refused: no file can be made any more. full:
# files can be made, and nothing written to them.
KILLS, DISKS = ("kill", "torn"), ("refused", "full")
TORN_AFTER = (0, 1, 60, 500, 4000, 30_000)  # bytes of a file that are written before it is torn


@dataclass
class Fault:
    """What happens at the n-th write (from 0) below the folder; -1: nothing, the writes are counted."""

    folder: str
    kind: str = "kill"
    at: int = -1
    seen: list[str] = field(default_factory=list)
    begun: bool = False

    def install(self) -> None:
        """For the rest of the process's life: audit hooks cannot be removed. After the imports of what writes."""
        sys.addaudithook(self._hear)
        for module, name in (("torch", "save"), ("safetensors.torch", "save_file")):
            if module not in sys.modules:
                continue
            function = getattr(sys.modules[module], name)
            replacement = self._native(function)
            for user in list(sys.modules.values()):  # whoever imported it has a name of its own for it
                for name in [name for name, value in vars(user).items() if value is function]:
                    setattr(user, name, replacement)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            if given[2] & CREATES:
                self._write(event, given[0])
        elif event in ("os.remove", "os.rmdir"):
            self._write(event, given[0], given[1])
        elif event == "os.rename" or (event == "os.mkdir" and not os.path.isdir(given[0])):
            self._write(event, given[0])

    def _native(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            self._write(NATIVE, given[1] if len(given) > 1 else named.get("filename", named.get("f")))
            return function(*given, **named)

        return wrapped

    def _write(self, event: str, path: Any, within: int = -1) -> None:
        try:
            name = os.fsdecode(path)
        except TypeError:  # a file that is open already
            return
        name = os.path.abspath(name if within < 0 else os.path.join(os.readlink(f"/proc/self/fd/{within}"), name))
        if not f"{name}/".startswith((f"{self.folder}/", f"{self.folder}.partial/")):
            return
        number = len(self.seen)
        self.seen.append(f"{event} {name.removeprefix(self.folder)}")
        if number == self.at:
            self._begin(event)
        if self.begun and self.kind == "refused" and event in ("open", "os.mkdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    def _begin(self, event: str) -> None:
        self.begun = True
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "torn":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which Python ignores
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _limit_files(TORN_AFTER[self.at % len(TORN_AFTER)])
        elif self.kind == "full" or event == NATIVE:
            _limit_files(0)


def _limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
