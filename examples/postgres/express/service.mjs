// A payments service with Express and node-postgres: charge and record in one commit.
//
//     DATABASE_URL=postgres://shop:shop@127.0.0.1:5432/shop PORT=3000 node service.mjs

import express from "express";
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
// A connection that breaks while nobody uses it is replaced.
pool.on("error", () => {});

// snippet: begin
// Runs `effect` in a transaction and ends the operation with the answer that it gives: one commit.
const once = (effect) => async (request, response) => {
  const db = await pool.connect();
  let broken;
  try {
    await db.query("BEGIN");
    const { status, body } = await effect(db, request);
    const bytes = Buffer.from(JSON.stringify(body));
    await db.query("SELECT onceward.complete($1, $2, $3, $4)",
      [request.get("onceward-execution"), status, '[["content-type", "application/json"]]', bytes]);
    await db.query("COMMIT");
    response.status(status).type("json").send(bytes);
  } catch (error) {
    throw (broken = error); // Express answers 500, and the gateway lets a retry run.
  } finally {
    db.release(broken); // A connection that is closed has rolled back.
  }
};
// snippet: end

const app = express();
app.use(express.json());
app.set("env", "production");

app.post("/payments", once(async (db, request) => {
  const { cents } = request.body;
  // An answer of any status is final when it is committed.
  if (cents <= 0) return { status: 422, body: { detail: "a payment is at least one cent" } };
  const insert = "INSERT INTO payment (cents, execution) VALUES ($1, $2) RETURNING id";
  const { rows } = await db.query(insert, [cents, request.get("onceward-execution")]);
  return { status: 201, body: { id: Number(rows[0].id), cents } };
}));

app.listen(Number(process.env.PORT), "127.0.0.1");
