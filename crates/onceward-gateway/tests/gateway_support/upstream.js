// The same upstream as upstream.py, on Node's `http`; `mod.rs` describes the words of `x-do`.
"use strict";
const http = require("http");

const seen = [];
const gates = new Map();
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function gate(name) {
  if (!gates.has(name)) {
    const made = {};
    made.passed = new Promise((open) => (made.open = open));
    gates.set(name, made);
  }
  return gates.get(name);
}

function pattern(size) {
  const body = Buffer.alloc(size);
  for (let index = 0; index < size; index++) body[index] = ((index % 251) * 31) % 251;
  return body;
}

function pairs(raw) {
  const list = [];
  for (let index = 0; index < raw.length; index += 2) list.push([raw[index].toLowerCase(), raw[index + 1]]);
  return list;
}

function sendPlain(response, value) {
  const body = Buffer.from(JSON.stringify(value));
  response.writeHead(200, { "Content-Type": "application/json", "Content-Length": body.length });
  response.end(body);
}

function control(request, response) {
  if (request.url === "/count") {
    const by = (name) => {
      const counts = {};
      for (const one of seen) if (one[name] !== null) counts[one[name]] = (counts[one[name]] || 0) + 1;
      return counts;
    };
    sendPlain(response, { total: seen.length, by_key: by("key"), by_path: by("path") });
  } else if (request.url === "/seen") {
    sendPlain(response, seen);
  } else if (request.url.startsWith("/open/")) {
    gate(decodeURIComponent(request.url.slice(6))).open();
    sendPlain(response, "open");
  } else {
    return false;
  }
  return true;
}

async function answer(request, response) {
  if (control(request, response)) return;
  const query = new URL(request.url, "http://upstream").searchParams.get("do");
  const told = JSON.parse(request.headers["x-do"] || query || "{}");
  if ("early" in told) {
    response.writeHead(told.early, { "Content-Length": "0", Connection: "close" });
    response.end();
    return;
  }
  if ("stream" in told) {
    response.writeHead(200, {});
    response.flushHeaders();
    for await (const piece of request) response.write(piece);
    response.end();
    return;
  }
  const body = [];
  for await (const piece of request) body.push(piece);
  const whole = Buffer.concat(body);
  const one = {
    method: request.method,
    path: request.url,
    key: request.headers["idempotency-key"] ?? null,
    headers: pairs(request.rawHeaders),
    trailers: pairs(request.rawTrailers),
    size: whole.length,
    body: whole.subarray(0, 4096).toString("latin1"),
  };
  seen.push(one);
  const number = seen.length;
  if ("gate" in told) await gate(told.gate).passed;
  if (told.delay) await sleep(told.delay);
  if (told.hang_up) {
    request.socket.destroy();
    return;
  }
  let reply = Buffer.from(told.body ?? `receipt ${number}`, "latin1");
  if (told.echo) reply = Buffer.from(JSON.stringify(one));
  if ("size" in told) reply = pattern(told.size);
  if ("pad" in told) reply = Buffer.concat([reply, Buffer.alloc(told.pad, " ")]);
  await send(request, response, told, reply);
}

async function send(request, response, told, body) {
  const status = told.status ?? 201;
  const framing = told.framing ?? "length";
  const lines = (told.headers ?? []).flat();
  const bare = status === 204 || status === 304 || request.method === "HEAD";
  if (framing === "chunked") {
    lines.push("Transfer-Encoding", "chunked");
    if (told.trailers) lines.push("Trailer", told.trailers.map((pair) => pair[0]).join(", "));
  } else if (framing === "close") {
    response.shouldKeepAlive = false;
    response.useChunkedEncodingByDefault = false;
    lines.push("Connection", "close");
  } else if (!bare) {
    lines.push("Content-Length", String(body.length));
  }
  response.writeHead(status, lines);
  if (bare) {
    response.end();
    return;
  }
  if ("cut" in told) {
    const part = body.subarray(0, told.cut);
    if (part.length === 0) response.flushHeaders();
    else response.write(part);
    // What was written shall arrive before the end does.
    setTimeout(() => request.socket.destroySoon(), 30);
    return;
  }
  if ("pause" in told) {
    const half = Math.floor(body.length / 2);
    response.write(body.subarray(0, half));
    await sleep(told.pause);
    body = body.subarray(half);
  }
  response.write(body);
  if (told.trailers) response.addTrailers(told.trailers);
  response.end();
}

process.on("uncaughtException", () => {});
const server = http.createServer((request, response) => {
  request.on("error", () => {});
  response.on("error", () => {});
  answer(request, response).catch(() => request.socket.destroy());
});
const idle = process.argv[2] ? Number(process.argv[2]) * 1000 : 0;
server.keepAliveTimeout = idle;
server.listen(Number(process.env.PORT || 0), "127.0.0.1", 512, () => console.log(server.address().port));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
process.stdin.on("close", () => process.exit(0));
