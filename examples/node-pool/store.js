// SPDX-License-Identifier: Apache-2.0
/* The store of this example. PUT /customers/ID stores an order unless the customer has an order
 * with a larger fence. GET / returns the numbers of customers, writes and connections. */
"use strict";
const http = require("node:http");
const orders = new Map();
let connections = 0;
let writes = 0;

const put = (request, response, body) => {
  const fence = BigInt(request.headers["x-fence"]);
  const last = orders.get(request.url);
  if (last && fence < last.fence) return response.writeHead(412).end();
  orders.set(request.url, { fence, body });
  writes++;
  return setTimeout(() => response.writeHead(204).end(), 5);
};

http
  .createServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      if (request.method === "PUT") put(request, response, body);
      else response.end(JSON.stringify({ customers: orders.size, writes, connections }));
    });
  })
  .on("connection", () => connections++)
  .listen(Number(process.argv[2] ?? 8378), "127.0.0.1");
