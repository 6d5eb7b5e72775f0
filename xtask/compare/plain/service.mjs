// The service that every peer protects, without any protection.
import http from "node:http";

let charges = 0;

function answer(response, status, document, lines = {}) {
  response.writeHead(status, { "content-type": "application/json", ...lines });
  response.end(JSON.stringify(document));
}

function charge(order, response) {
  if (!Number.isInteger(order?.cents)) return answer(response, 422, { error: "cents is missing" });
  setTimeout(() => {
    charges += 1;
    const id = `ch_${charges}`;
    const lines = {
      location: `/charges/${id}`,
      link: [`</charges/${id}>; rel="self"`, `</refunds/${id}>; rel="refund"`],
    };
    answer(response, 201, { id, cents: order.cents, to: order.to }, lines);
  }, 20);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const server = http.createServer((request, response) => {
  const path = request.url.split("?")[0];
  if (path === "/count") return answer(response, 200, { total: charges });
  if (path !== "/charges") return answer(response, 404, { error: "not found" });
  if (!request.headers["x-api-key"]) return answer(response, 401, { error: "no API key" });
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => charge(parsed(Buffer.concat(parts).toString()), response));
});
server.listen(Number(process.env.PORT), "127.0.0.1");
