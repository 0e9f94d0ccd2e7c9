"""A Redis server, and a wire to it that can be slow or cut."""

import asyncio
import pathlib
import shutil
import socket
import subprocess
import threading

REDIS = shutil.which("redis-server")
# The handshake of the crate `redis`, and `PING`, each wait for an answer: a wire this slow is never connected.
SLOW_SECONDS = 1.0


class Redis:
    """A server at a socket in a directory, which keeps nothing on the disk."""

    def __init__(self, directory):
        self.path = pathlib.Path(directory) / "redis.sock"
        command = [REDIS, "--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", str(self.path)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=directory)
        self.url = f"unix://{self.path}"

    def answers(self):
        try:
            return self.ask("PING") == b"+PONG\r\n"
        except OSError:
            return False

    def ask(self, *command):
        """The first bytes of the answer to a command, as they come."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(300)
            connection.connect(str(self.path))
            parts = [part.encode() for part in command]
            written = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
            connection.sendall(b"*%d\r\n%s" % (len(parts), written))
            return connection.recv(1 << 16)

    def fill(self):
        """Leaves no room for anything more."""
        self.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert self.ask("CONFIG", "SET", "maxmemory", "1") == b"+OK\r\n"

    def empty(self):
        """There is room again, and nothing is there."""
        self.ask("CONFIG", "SET", "maxmemory", "0")
        self.ask("FLUSHALL")

    def stop(self):
        self.process.kill()
        self.process.wait()


class Wire:
    """Passes on what comes, at once, late, or not at all."""

    def __init__(self, redis, directory):
        self.path, self.redis = pathlib.Path(directory) / "wire.sock", redis
        self.mode, self.held = "whole", []
        self.url = f"unix://{self.path}"
        self.loop, ready = asyncio.new_event_loop(), threading.Event()
        self.thread = threading.Thread(target=self.run, args=[ready], daemon=True)
        self.thread.start()
        ready.wait()

    def run(self, ready):
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(asyncio.start_unix_server(self.serve, str(self.path)))
        ready.set()
        self.loop.run_forever()

    async def serve(self, reader, writer):
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self.redis.path))
        except OSError:
            writer.close()
            return
        await asyncio.gather(self.pass_on(reader, up_writer), self.pass_on(up_reader, writer))

    async def pass_on(self, reader, writer):
        while data := await reader.read(1 << 16):
            if self.mode == "slow":
                self.loop.call_later(SLOW_SECONDS, writer.write, data)
            elif self.mode == "cut":
                self.held.append((writer, data))
            else:
                writer.write(data)
        writer.close()

    def set(self, mode):
        """How bytes are passed on from now on: `whole`, `slow` or `cut`. A wire that is whole again passes on what was held."""

        def change():
            self.mode, held = mode, self.held
            self.held = []
            for writer, data in held:
                writer.write(data)

        self.loop.call_soon_threadsafe(change)

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
