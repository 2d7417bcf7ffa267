"""The least that an HTTP server can do with a picture: read the body and answer a constant."""

from fastapi import FastAPI, Request

app = FastAPI()

ANSWER = {
    "id": "0",
    "model": "bare",
    "results": [{"index": 0, "captions": [{"text": "a constant", "tokens": 3, "finish_reason": "stop"}]}],
}


@app.post("/v1/captions")
async def captions(request: Request) -> dict[str, object]:
    await request.body()
    return ANSWER


@app.get("/readyz")
async def ready() -> dict[str, str]:
    return {"status": "ready"}
