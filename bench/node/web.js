// SPDX-License-Identifier: Apache-2.0
// A web server that answers 204 to every request, and a command that runs beside the server. The
// program does the same as bench/web.c, but with Node's module http, as many services do.
//
//     node web.js COMMAND [ARGUMENT…]
"use strict";
const http = require("http");
const { spawn } = require("child_process");

let answers = 0;
const server = http.createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    answers++;
    response.writeHead(204).end();
  });
});
server.keepAliveTimeout = 0; // never close an idle connection
server.listen({ host: "127.0.0.1", port: 0, backlog: 1024 }, () => {
  const [command, ...words] = process.argv.slice(2);
  const url = `http://127.0.0.1:${server.address().port}/`;
  const before = process.cpuUsage();
  const child = spawn(command, words, {
    env: { ...process.env, LW_WEB_URL: url },
    stdio: "inherit",
  });
  child.on("error", (error) => {
    console.error(`web.js: ${command}: ${error.message}`);
    process.exit(127);
  });
  child.on("exit", (status) => {
    const used = process.cpuUsage(before);
    const us = answers ? (used.user + used.system) / answers : 0;
    console.log(JSON.stringify({ answers, web_us: us }));
    process.exit(status ?? 1);
  });
});
