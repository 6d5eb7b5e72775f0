// A service with express-idempotency. It counts how often it runs, and says so on another port.
import http from "node:http";
import express from "express";
import idempotency from "express-idempotency";
import adapters from "express-idempotency-redis-adapter";

const adapter = new adapters.default({ connectionConfig: { url: "REDIS" } });
await adapter.connect();

let executions = 0;
const app = express();
app.disable("x-powered-by");
app.use(express.json());
app.use(idempotency.idempotency({ dataAdapter: adapter }));
app.post("/v1/charges", (request, response) => {
  if (idempotency.getSharedIdempotencyService().isHit(request)) return;
  executions += 1;
  response.send({ id: "ch_42", memo: "MEMO" });
});

const counter = http.createServer((_, response) => {
  const text = String(executions);
  response.writeHead(200, { "content-length": text.length }).end(text);
});
const service = app.listen(0, "127.0.0.1", () => {
  counter.listen(0, "127.0.0.1", () => {
    console.log(`service on http://127.0.0.1:${service.address().port}`);
    console.log(`count on 127.0.0.1:${counter.address().port}`);
  });
});
