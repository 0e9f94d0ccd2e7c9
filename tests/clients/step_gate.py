"""Holds the native engine of a server between two steps, so that what is to be under way cannot have ended.

The other side, and what is said over the socket: src/launch/step_gate.rs.
"""

import os
import socket
import tempfile


class StepGate:
    """The gate of one server, open at first."""

    def __init__(self):
        # The name of a socket is short, which pytest's directories are not.
        self.directory = tempfile.TemporaryDirectory(prefix="tito-")
        self.path = os.path.join(self.directory.name, "steps")
        self.connection = None

    def hold(self):
        """Returns when no step is computed any more. Whatever is asked of the server is done all the same, but for sampling."""
        if self.connection is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(300)
            connection.connect(self.path)
            self.connection = connection, connection.makefile("rb")
            self.answer()

    def answer(self):
        line = self.connection[1].readline()
        assert line, "the server has gone"
        return int(line)

    def sequences(self):
        """How many sequences the engine has, running and waiting ones."""
        self.connection[0].sendall(b"?")
        return self.answer()

    def step(self, count=1):
        """Lets so many steps be computed, of all sequences that the engine has, and returns when they are."""
        for _ in range(count):
            self.connection[0].sendall(b"s")
            self.answer()

    def go_on(self):
        """Lets everything be computed again; nothing is wrong with a gate that is open."""
        if self.connection is not None:
            for end in reversed(self.connection):
                end.close()
            self.connection = None

    def close(self):
        self.go_on()
        self.directory.cleanup()
