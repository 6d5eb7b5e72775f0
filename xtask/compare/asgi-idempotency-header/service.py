"""The service with asgi-idempotency-header in FastAPI, and its backend for Redis."""

import asyncio
import os

import uvicorn
from fastapi import FastAPI, Request
from fastapi.middleware import Middleware
from fastapi.responses import JSONResponse
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend
from redis.asyncio import from_url

total = 0


class Authentication:
    """Outside of the idempotency middleware: who has no API key does not reach it."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] != "/count":
            if not dict(scope["headers"]).get(b"x-api-key"):
                refusal = JSONResponse({"error": "no API key"}, 401)
                return await refusal(scope, receive, send)
        return await self.app(scope, receive, send)


backend = RedisBackend(redis=from_url(os.environ["REDIS_URL"]))
app = FastAPI(
    middleware=[
        Middleware(Authentication),
        Middleware(IdempotencyHeaderMiddleware, backend=backend),
    ]
)


@app.get("/count")
async def count():
    return {"total": total}


@app.post("/charges")
async def charge(request: Request):
    global total
    order = await request.json()
    if not isinstance(order.get("cents"), int):
        return JSONResponse({"error": "cents is missing"}, 422)
    await asyncio.sleep(0.02)
    total += 1
    number = f"ch_{total}"
    document = {"id": number, "cents": order["cents"], "to": order.get("to")}
    response = JSONResponse(document, 201, {"location": f"/charges/{number}"})
    response.headers.append("link", f'</charges/{number}>; rel="self"')
    response.headers.append("link", f'</refunds/{number}>; rel="refund"')
    return response


uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
