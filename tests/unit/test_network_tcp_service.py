"""The TCP server beneath the services: bounded, and gone when it is stopped."""

from __future__ import annotations

import socket
import socketserver
import threading

import pytest

from slurm_cluster.rehearsal.network import tcp_service
from slurm_cluster.rehearsal.network.tcp_service import TcpService


class Echo(socketserver.BaseRequestHandler):
    request: socket.socket

    def handle(self) -> None:
        while data := self.request.recv(64):
            self.request.sendall(data)


def started() -> tuple[TcpService, tuple[str, int]]:
    listening = socket.create_server(("127.0.0.1", 0))
    service = TcpService(listening, Echo, "echo")
    service.start()
    return service, listening.getsockname()


def test_connections_are_served_side_by_side() -> None:
    service, address = started()
    with socket.create_connection(address, 10) as first, socket.create_connection(address, 10) as second:
        for client in (second, first):
            client.sendall(b"x")
            assert client.recv(1) == b"x"
    service.stop()


def test_one_connection_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_service, "MAX_CONNECTIONS", 1)
    service, address = started()
    with socket.create_connection(address, 10) as first:
        first.sendall(b"x")
        assert first.recv(1) == b"x"
        with socket.create_connection(address, 10) as second:
            assert second.recv(1) == b""
        first.sendall(b"y")
        assert first.recv(1) == b"y"
    service.stop()


def test_stop_ends_what_is_open_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    service, address = started()
    with socket.create_connection(address, 10) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        service.stop()
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 10)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(("error", "is_reported"), [(BrokenPipeError(), False), (RuntimeError("a bug"), True)])
def test_a_bug_is_reported_and_a_caller_that_hung_up_is_not(
    error: Exception, is_reported: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            raise error

    listening = socket.create_server(("127.0.0.1", 0))
    service = TcpService(listening, Failing, "failing")
    service.start()
    with socket.create_connection(listening.getsockname(), 10) as client:
        assert client.recv(1) == b""
    service.stop()
    assert (type(error).__name__ in capsys.readouterr().err) is is_reported
