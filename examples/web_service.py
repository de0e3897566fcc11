"""A web service that writes to Kafka: one Client for the process, made in the lifespan.

Run it with any ASGI server:   KAFKA_BOOTSTRAP=localhost:9092 uvicorn examples.web_service:app
Then:                          curl -d '{"page": "/"}' localhost:8000/clicks

Each request awaits its own acknowledgement; a thousand of them at once share batches. A caller that
goes away cancels its request, not its record: what was appended is sent.
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
    """One Client and one Producer, as long as the service runs."""
    bootstrap = os.environ.get("KAFKA_BOOTSTRAP", "localhost:9092")
    async with Client(bootstrap, client_id="web") as client, Producer(client) as producer:
        app.state.producer = producer
        yield


async def click(request: Request) -> JSONResponse:
    """Store a click; answers when the cluster has it."""
    producer: Producer = request.app.state.producer
    body = await request.body()
    try:
        receipt = await producer.send(TOPIC, body)
    except RecordTooLargeError as error:
        return JSONResponse({"error": str(error)}, status_code=413)
    except KafkaError as error:
        return JSONResponse({"error": str(error)}, status_code=503)
    return JSONResponse({"partition": receipt.partition, "offset": receipt.offset})


app = Starlette(routes=[Route("/clicks", click, methods=["POST"])], lifespan=lifespan)
