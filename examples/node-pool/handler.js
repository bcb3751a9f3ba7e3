// SPDX-License-Identifier: Apache-2.0
/* Writes each order into a store over HTTP, through a pool of at most 10 connections, while up to
 * handler.in_flight orders are in progress. */
"use strict";
const http = require("node:http");
const latchwork = require("latchwork");

// A pool of database connections is used in the same way.
const pool = new http.Agent({ keepAlive: true, maxSockets: 10 });
const [host, port] = (process.env.SERVICE ?? "127.0.0.1:8378").split(":");

const put = (path, body, headers, signal) =>
  new Promise((resolve, reject) => {
    const request = http.request(
      { agent: pool, host, port, path, method: "PUT", headers, signal },
      (response) => {
        response.resume();
        response.on("end", () => resolve(response.statusCode));
        response.on("error", reject);
      },
    );
    request.on("error", reject);
    request.end(body);
  });

latchwork
  .run(async (m, { signal }) => {
    const order = m.json();
    if (!order.customer) throw new latchwork.Dead("the order has no customer");
    // The store refuses a fence that is smaller than the customer's last fence, so that a process
    // that was frozen cannot overwrite a newer order.
    const status = await put(
      `/customers/${order.customer}`,
      JSON.stringify(order),
      { "x-fence": String(m.fence) },
      signal,
    );
    if (status === 412) throw new latchwork.Dead("a newer order of the customer was written");
    if (status !== 204) throw new latchwork.Retry(`the store answered ${status}`);
  })
  .then(() => pool.destroy());
