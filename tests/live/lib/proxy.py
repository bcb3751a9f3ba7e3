# SPDX-License-Identifier: Apache-2.0
"""Simulates a bad network: a TCP proxy on the loopback that delays or swallows bytes, or resets
connections. The proxy does not interpret the bytes, so it can also relay TLS."""

import asyncio
import threading

from .process import Failure

CHUNK = 65536


class Proxy:
    """A proxy to which clients connect at `port`. If the proxy has swallowed bytes of a connection,
    it relays nothing more on that connection, but does not close it."""

    def __init__(self, target_port):
        self.target_port, self.delay_s, self.swallows = target_port, 0, False
        self.writers = set()
        self.loop = asyncio.new_event_loop()
        self.port, self.relayed = None, 0
        self.up = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()
        if not self.up.wait(20):
            raise Failure("the proxy does not start")

    def run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.connected, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.up.set()
        self.loop.run_forever()

    async def connected(self, reader, writer):
        try:
            target_reader, target_writer = await asyncio.open_connection(
                "127.0.0.1", self.target_port
            )
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, target_writer)
        self.writers.update(pair)
        lost = []  # not empty if bytes of this connection were swallowed
        await asyncio.gather(
            *(self.relay(r, w, lost) for r, w in ((reader, target_writer), (target_reader, writer)))
        )
        for w in pair:
            w.transport.abort()
        self.writers.difference_update(pair)

    async def relay(self, reader, writer, lost):
        """Relays one direction of a connection. Each chunk of data is delayed by delay_s
        independently of other chunks, so that chunks do not wait for each other."""
        queue = asyncio.Queue()
        sender = self.loop.create_task(self.send(queue, writer))
        try:
            while True:
                data = await reader.read(CHUNK)
                if not data:
                    break
                if self.swallows:
                    lost.append(True)
                if not lost:
                    await queue.put((self.loop.time() + self.delay_s, data))
        except OSError:
            pass
        await queue.put(None)
        await sender
        writer.transport.abort()

    async def send(self, queue, writer):
        while True:
            item = await queue.get()
            if item is None:
                return
            await asyncio.sleep(max(0, item[0] - self.loop.time()))
            self.relayed += len(item[1])
            try:
                writer.write(item[1])
                await writer.drain()
            except OSError:
                return

    def cut(self):
        """Resets every connection, even in the middle of a pipeline."""
        self.loop.call_soon_threadsafe(lambda: [w.transport.abort() for w in list(self.writers)])
        return len(self.writers) // 2

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
