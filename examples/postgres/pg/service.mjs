// A payments service with node-postgres and nothing else: charge and record in one commit.
//
//     DATABASE_URL=postgres://shop:shop@127.0.0.1:5432/shop PORT=3000 node service.mjs

import { createServer } from "node:http";
import { json } from "node:stream/consumers";
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
// A connection that breaks while nobody uses it is replaced.
pool.on("error", () => {});

// snippet: begin
async function charge(execution, cents) {
  const db = await pool.connect();
  let broken;
  try {
    await db.query("BEGIN");
    const insert = "INSERT INTO payment (cents, execution) VALUES ($1, $2) RETURNING id";
    const { rows } = await db.query(insert, [cents, execution]);
    const headers = [["content-type", "application/json"]];
    const body = Buffer.from(JSON.stringify({ id: Number(rows[0].id), cents }));
    // The record of the operation ends with this answer, in the same commit as the payment. If another
    // execution has taken over meanwhile, this throws an error with the code OW001.
    const complete = "SELECT onceward.complete($1, $2, $3, $4)";
    await db.query(complete, [execution, 201, JSON.stringify(headers), body]);
    await db.query("COMMIT");
    return { status: 201, headers, body };
  } catch (error) {
    throw (broken = error);
  } finally {
    db.release(broken); // A connection that is closed has rolled back.
  }
}
// snippet: end

function send(response, { status, headers, body }) {
  response.writeHead(status, [...headers, ["content-length", body.length]].flat());
  response.end(body);
}

const text = (status, words) => ({ status, headers: [], body: Buffer.from(`${words}\n`) });

createServer(async (request, response) => {
  try {
    const { cents } = await json(request);
    const execution = request.headers["onceward-execution"];
    if (request.url !== "/payments" || execution === undefined) {
      return send(response, text(404, "payments are made through the gateway"));
    }
    // Nothing was done: the gateway keeps this answer by its status.
    if (cents <= 0) return send(response, text(422, "a payment is at least one cent"));
    send(response, await charge(execution, cents));
  } catch {
    // Nothing was committed: the gateway lets a retry run.
    send(response, text(500, "try again"));
  }
}).listen(Number(process.env.PORT), "127.0.0.1");
