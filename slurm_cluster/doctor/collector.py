"""Where workers hand their answers over directly, if the way there is open: it is quicker than a job's comment."""

from __future__ import annotations

import hmac
import random
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any, Self

from slurm_cluster.doctor import answers
from slurm_cluster.model.flows import PortRange
from slurm_cluster.runtime.node import probe_connections

TAKEN = b"taken\n"
_HEADER_LENGTH = 256
_MOST_BYTES = 1 << 20
_READ_SECONDS = 10.0
_TRIES = 200


class Collector:
    """Listens from ``__enter__`` to ``__exit__``.

    A worker sends one line, ``TOKEN NODE LENGTH``, and its answer of that many bytes, and gets ``TAKEN``.

    Args:
        inside: ports to choose one from.
        address: this machine's, as workers reach it; without one nothing is collected.
    """

    def __init__(self, inside: PortRange, address: str) -> None:
        self._token = secrets.token_hex(16)
        self._address = address
        self._answers: dict[str, Mapping[str, Any]] = {}
        ports = range(inside.first, inside.last + 1)
        chosen = random.sample(ports, min(_TRIES, len(ports)))
        self._listener = next((one for port in chosen if (one := probe_connections.listener(port)) is not None), None)
        self._over = False

    def __enter__(self) -> Self:
        if self._listener is not None:
            self._listener.settimeout(0.2)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._listener is not None:
            self._listener.close()

    @property
    def request(self) -> dict[str, str]:
        """What a worker must be told, see ``worker.hand_over``."""
        if self._listener is None or not self._address:
            return {}
        return {"DOCTOR_RETURN": f"{self._address}:{self._listener.getsockname()[1]}", "DOCTOR_TOKEN": self._token}

    def answer(self, node: str) -> Mapping[str, Any] | None:
        """Return the answer of a node, None if it has not come."""
        return self._answers.get(node)

    def _accept(self, listener: socket.socket) -> None:
        while not self._over:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            threading.Thread(target=self._take, args=(connection,), daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_READ_SECONDS)
            try:
                stream = connection.makefile("rb")
                token, node, length = stream.readline(_HEADER_LENGTH).decode().split()
                if not hmac.compare_digest(token, self._token):
                    return
                self._answers[node] = answers.plain(stream.read(min(int(length), _MOST_BYTES)).decode())
                connection.sendall(TAKEN)
            except (OSError, ValueError):
                return  # whoever it was may try again, or use the comment
