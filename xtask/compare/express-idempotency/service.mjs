// The service with express-idempotency and its adapter for Redis.
import express from "express";
import idempotency from "express-idempotency";
import adapters from "express-idempotency-redis-adapter";

const adapter = new adapters.default({ connectionConfig: { url: process.env.REDIS_URL } });
await adapter.connect();

let charges = 0;
const app = express();
app.disable("x-powered-by");
app.get("/count", (_, response) => response.send({ total: charges }));
app.use((request, response, next) => {
  if (request.get("x-api-key")) return next();
  response.status(401).send({ error: "no API key" });
});
app.use(express.json());
app.use(idempotency.idempotency({ dataAdapter: adapter }));
app.post("/charges", (request, response) => {
  if (idempotency.getSharedIdempotencyService().isHit(request)) return;
  const { cents, to } = request.body ?? {};
  if (!Number.isInteger(cents)) return response.status(422).send({ error: "cents is missing" });
  setTimeout(() => {
    charges += 1;
    const id = `ch_${charges}`;
    response.location(`/charges/${id}`);
    response.append("link", `</charges/${id}>; rel="self"`);
    response.append("link", `</refunds/${id}>; rel="refund"`);
    response.status(201).send({ id, cents, to });
  }, 20);
});
app.listen(Number(process.env.PORT), "127.0.0.1");
