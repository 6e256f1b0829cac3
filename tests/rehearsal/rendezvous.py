"""What every distributed training does first: rank 0 listens at MASTER_ADDR, all others connect to it by TCP.

Runs as the tasks of one job step; prints whom the rank met. Python's standard library only.
"""

import os
import socket
import time

_SECONDS = 8.0

rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
port = int(os.environ["MASTER_PORT"])


def _read_line(connection: socket.socket) -> str:
    with connection.makefile() as stream:
        return stream.readline().strip()


def _lead() -> str:
    ranks = [rank]
    peers = []
    with socket.create_server(("", port)) as server:
        server.settimeout(_SECONDS)
        while len(ranks) < size:
            peer, _ = server.accept()
            peer.settimeout(_SECONDS)
            ranks.append(int(_read_line(peer)))
            peers.append(peer)
    met = ",".join(str(number) for number in sorted(ranks))
    for peer in peers:
        peer.sendall(f"{met}\n".encode())
        peer.close()
    return met


def _follow() -> str:
    address = os.environ["MASTER_ADDR"]
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            connection = socket.create_connection((address, port), timeout=_SECONDS)
            break
        except ConnectionRefusedError:  # rank 0 does not listen yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    with connection:
        connection.sendall(f"{rank}\n".encode())
        return _read_line(connection)


try:
    outcome = _lead() if rank == 0 else _follow()
except OSError as error:
    outcome = f"nobody: {error}"
print(f"rank {rank} of {size} on {os.environ['SLURMD_NODENAME']} met {outcome}", flush=True)
