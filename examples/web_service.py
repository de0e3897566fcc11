"""A web service that writes to Kafka, with one Client per process, created in the lifespan.

Run it with any ASGI server:   KAFKA_BOOTSTRAP=localhost:9092 uvicorn examples.web_service:app
Then:                          curl -d '{"page": "/"}' localhost:8000/clicks

Each HTTP request awaits the acknowledgement of its record; concurrent requests share batches. When
a caller disconnects, its HTTP request is cancelled, but its record is still sent.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from kafka_async import Client, Producer
from kafka_async.errors import KafkaError, RecordTooLargeError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

TOPIC = "clicks"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """Provide one Client and one Producer while the service runs."""
    bootstrap = os.environ.get("KAFKA_BOOTSTRAP", "localhost:9092")
    async with Client(bootstrap, client_id="web") as client, Producer(client) as producer:
        app.state.producer = producer
        yield


async def click(request: Request) -> JSONResponse:
    """Store a click and respond when the cluster has acknowledged it."""
    producer: Producer = request.app.state.producer
    body = await request.body()
    try:
        metadata = await producer.send(TOPIC, body)
    except RecordTooLargeError as error:
        return JSONResponse({"error": str(error)}, status_code=413)
    except KafkaError as error:
        return JSONResponse({"error": str(error)}, status_code=503)
    return JSONResponse({"partition": metadata.partition, "offset": metadata.offset})


app = Starlette(routes=[Route("/clicks", click, methods=["POST"])], lifespan=lifespan)
