// The service behind Restate. It counts how often it runs, and says so on another port.
import http from "node:http";
import http2 from "node:http2";
import * as restate from "@restatedev/restate-sdk";

// The SDK calls it, and Node has it only since version 22.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new this((yes, no) => ([resolve, reject] = [yes, no]));
  return { promise, resolve, reject };
};

let executions = 0;
const charges = restate.service({
  name: "charges",
  handlers: {
    create: async () => {
      executions += 1;
      return { id: "ch_42", memo: "MEMO" };
    },
  },
});

const service = http2.createServer(restate.createEndpointHandler({ services: [charges] }));
const counter = http.createServer((_, response) => {
  const text = String(executions);
  response.writeHead(200, { "content-length": text.length }).end(text);
});
service.listen(0, "127.0.0.1", () => {
  counter.listen(0, "127.0.0.1", () => {
    console.log(`service on http://127.0.0.1:${service.address().port}`);
    console.log(`count on 127.0.0.1:${counter.address().port}`);
  });
});
