"""An ordinary service with FastAPI and SQLite: it knows nothing of idempotency.

    uvicorn service:app --port 3000
"""

import sqlite3
import time
from contextlib import closing

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Charge(BaseModel):
    cents: int


def database():
    # Without an isolation level, each statement is a transaction of its own.
    db = sqlite3.connect("charges.db", isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS charge (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)")
    return closing(db)


@app.post("/charges", status_code=201)
def create(charge: Charge, slow: bool = False):
    with database() as db:
        number = db.execute("INSERT INTO charge (cents) VALUES (?)", (charge.cents,)).lastrowid
    if slow:
        time.sleep(20)  # The charge is made, and its answer is on its way for long.
    return {"id": number, "cents": charge.cents}


@app.get("/charges")
def list_all():
    with database() as db:
        rows = db.execute("SELECT id, cents FROM charge ORDER BY id").fetchall()
    return [{"id": number, "cents": cents} for number, cents in rows]
