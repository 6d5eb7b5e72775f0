// An ordinary service with Express and SQLite: it knows nothing of idempotency.
//
//     PORT=3000 node service.mjs

import { rmSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import express from "express";
import sqlite from "node-sqlite3-wasm";

// This driver locks by a directory, which outlives a process that was killed; this process is the only one.
rmSync("charges.db.lock", { recursive: true, force: true });
const db = new sqlite.Database("charges.db");
db.exec("CREATE TABLE IF NOT EXISTS charge (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)");

const app = express();
app.use(express.json());

app.post("/charges", async (request, response) => {
  const { cents } = request.body;
  const { lastInsertRowid } = db.run("INSERT INTO charge (cents) VALUES (?)", cents);
  // The charge is made, and its answer is on its way for long.
  if (request.query.slow) await setTimeout(20_000);
  response.status(201).json({ id: lastInsertRowid, cents });
});

app.get("/charges", (request, response) => {
  response.json(db.all("SELECT id, cents FROM charge ORDER BY id"));
});

app.listen(Number(process.env.PORT), "127.0.0.1");
