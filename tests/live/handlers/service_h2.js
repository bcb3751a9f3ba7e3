// SPDX-License-Identifier: Apache-2.0
// A service for the live tests of the http handler: HTTP/2 over TLS, and HTTP/1.1 for clients that
// ask for HTTP/1.1. Arguments: port, log, certificate, key. For each request the service writes a
// line to the log: {"id","version","connection","trace","body"}.
"use strict";
const fs = require("fs");
const http2 = require("http2");
const [port, log, cert, key] = process.argv.slice(2);
let connections = 0;

const server = http2.createSecureServer({
  cert: fs.readFileSync(cert),
  key: fs.readFileSync(key),
  allowHTTP1: true,
});
server.on("secureConnection", (socket) => {
  socket.number = ++connections;
});
server.on("request", (request, response) => {
  const chunks = [], socket = request.stream ? request.stream.session.socket : request.socket;
  const number = socket.number;
  request.on("aborted", () =>
    fs.appendFileSync(log, JSON.stringify({ aborted: request.headers["ce-id"] }) + "\n"),
  );
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const line = { id: request.headers["ce-id"], version: request.httpVersion, connection: number,
                   trace: request.headers.traceparent, body: Buffer.concat(chunks).toString() };
    fs.appendFileSync(log, JSON.stringify(line) + "\n");
    setTimeout(() => { response.writeHead(204); response.end(); }, 5);
  });
});
server.listen(Number(port), "127.0.0.1");
