"""A payments service with FastAPI and psycopg: charge and record in one commit.

    DATABASE_URL=postgres://shop:shop@127.0.0.1:5432/shop PORT=3000 python service.py
"""

import json
import os
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel, Field

pool = AsyncConnectionPool(os.environ["DATABASE_URL"], open=False)


@asynccontextmanager
async def lifespan(_):
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)


class Payment(BaseModel):
    # A refusal is a plain answer: nothing was done, and the gateway keeps it by its status.
    cents: Annotated[int, Field(gt=0)]


# snippet: begin
@app.post("/payments")
async def pay(payment: Payment, onceward_execution: Annotated[str, Header()]):
    # Commits at the end of the block, and rolls everything back if anything in it raises.
    async with pool.connection() as db:
        insert = "INSERT INTO payment (cents, execution) VALUES (%s, %s) RETURNING id"
        rows = await db.execute(insert, (payment.cents, onceward_execution))
        (number,) = await rows.fetchone()
        response = JSONResponse({"id": number, "cents": payment.cents}, status_code=201)
        headers = [list(line) for line in response.headers.items()]
        # The record of the operation ends with this answer, in the same commit as the payment. If
        # another execution has taken over meanwhile, this raises SQLSTATE OW001.
        await db.execute(
            "SELECT onceward.complete(%s, %s, %s::jsonb, %s)",
            (onceward_execution, response.status_code, json.dumps(headers), response.body),
        )
    return response
# snippet: end


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
