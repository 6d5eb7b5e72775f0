// The service as a handler behind Restate's ingress. The count has a port of its own.
import http from "node:http";
import http2 from "node:http2";
import * as restate from "@restatedev/restate-sdk";

// The SDK calls it, and Node has it only since version 22.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new this((yes, no) => ([resolve, reject] = [yes, no]));
  return { promise, resolve, reject };
};

let total = 0;
const charges = restate.service({
  name: "charges",
  handlers: {
    create: async (context, order) => {
      if (!Number.isInteger(order?.cents)) {
        throw new restate.TerminalError("cents is missing", { errorCode: 422 });
      }
      const id = await context.run("charge", async () => {
        await new Promise((done) => setTimeout(done, 20));
        total += 1;
        return `ch_${total}`;
      });
      return { id, cents: order.cents, to: order.to };
    },
  },
});

http2
  .createServer(restate.createEndpointHandler({ services: [charges] }))
  .listen(Number(process.env.PORT), "127.0.0.1");
http
  .createServer((_, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ total }));
  })
  .listen(Number(process.env.COUNT_PORT), "127.0.0.1");
