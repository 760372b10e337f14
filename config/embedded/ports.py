"""TCP ports on this machine."""

import socket

from config.embedded.errors import PortBusy


def require_free_port(port: int, *, variable: str, host: str = "127.0.0.1") -> None:
    """Raises PortBusy, naming the environment variable that chooses another port."""
    with socket.socket() as probe:
        # As servers do: a connection that has just ended does not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            raise PortBusy(host, port, variable) from None


def accepts_connections(port: int, *, host: str = "127.0.0.1") -> bool:
    """For a program's readiness: whether something listens there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0
