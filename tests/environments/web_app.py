"""An application of FastAPI, as users write it; uvicorn and gunicorn run it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import BackgroundTasks, FastAPI

from kafka_async import Producer, blocking

SERVERS = os.environ["SERVERS"]
PRODUCER = Producer(SERVERS)  # made before gunicorn forks its workers
if os.environ.get("USED_BEFORE_FORK"):
    with blocking.Producer(SERVERS) as before:
        before.send("web", b"before the fork")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with PRODUCER:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/send")
async def send(value: str) -> int:
    return (await PRODUCER.send("web", value.encode())).offset + 10 * os.getpid()


@app.post("/background")
async def background(value: str, tasks: BackgroundTasks) -> None:
    tasks.add_task(PRODUCER.send, "web", value.encode())


@app.post("/blocking")
def in_thread(value: str) -> None:
    with blocking.Producer(SERVERS) as producer:
        producer.send("web", value.encode())
