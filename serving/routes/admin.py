"""POST and DELETE /v1/admin/models: models come and go while the server runs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from models.catalog import BUNDLED, FAKE_CARD, CaptionerEntry, find_by_id, find_captioner
from models.errors import CheckpointError, ExperimentError, RequestError, UnknownNameError
from models.file_hashes import verify_files
from serving.bodies import read_json
from serving.errors import problem_responses
from serving.experiments.checks import check_arms
from serving.middleware.authentication import given_key
from serving.openapi import json_form
from serving.problems import refuse
from serving.routes.models_list import model_out
from serving.schemas import AddModelRequest, ModelOut
from serving.served_models import ServedModels
from serving.services import Admin, Services, ServicesDep
from serving.validation import validated

router = APIRouter(tags=["admin"])

_UNFIT = 422
"""Status where the server's files are at fault: here they are what the client asked for."""
_COMMON = ("unauthorized", "not_found", "unknown_model", "invalid_request", "unavailable")


async def _admin_of(request: Request, services: ServicesDep) -> Admin:
    """What may be done with the key that a request brings. A dependency: it comes before all else that may be wrong.

    Raises:
        RequestError: ``unauthorized``.
    """
    assert services.admin is not None  # else there is no such route
    key = given_key(request.headers)
    if key is None or services.admin.keys.name_of(key) is None:
        what = "an admin key is needed" if key is None else "this is no admin key of this server"
        raise RequestError("unauthorized", f"{what}; send one as 'Authorization: Bearer KEY'")
    return services.admin


AdminDep = Annotated[Admin, Depends(_admin_of)]


@router.post(
    "/v1/admin/models",
    response_model=ModelOut,
    responses={
        201: {"model": ModelOut, "description": "it was not served before"},
        **problem_responses(
            *_COMMON, "malformed_json", "body_timeout", "body_too_large", "unsupported_media_type", "malformed_body"
        ),
    },
    openapi_extra=json_form(AddModelRequest),
)
async def add_model(
    request: Request, services: ServicesDep, admin: AdminDep, response: Response
) -> Response | ModelOut:
    """Serve one model more, or the present files of one that is served already.

    It is one of the models folder or a bundled one. Every captioner loads it beside what it serves, and captions a
    picture with it; then it counts for all. No request fails of it. When a replica cannot load it, nothing changes, and
    the answer (422) says why.
    """
    model = validated(AddModelRequest, await read_json(request)).model
    try:
        entry = await run_in_threadpool(_checked, services, model)
        new = await admin.registry.put(model)
    except (CheckpointError, ExperimentError) as error:
        return refuse(request, error.code, error.detail, status=_UNFIT)
    response.status_code = 201 if new else 200
    return model_out(model, entry.card, model == services.models.default)


@router.delete("/v1/admin/models", status_code=204, responses=problem_responses(*_COMMON))
async def remove_model(
    request: Request, services: ServicesDep, admin: AdminDep, model: Annotated[str, Query(description="its id")]
) -> Response:
    """Serve one model less. What was accepted is still answered. Neither the default model can go nor one of which an
    experiment has an arm."""
    if len(request.query_params.getlist("model")) > 1:
        raise RequestError("invalid_request", "model: given twice in the query; one request takes out one model")
    users = [each.name for each in services.args.experiments if any(arm.model == model for arm in each.arms)]
    if users:
        raise RequestError("invalid_request", f"model {model[:200]!r} has an arm of experiment {users[0]!r}")
    await admin.registry.remove(model)
    return Response(status_code=204)


def _checked(services: Services, model: str) -> CaptionerEntry:
    """The model's entry, once its files are what its card says and the experiments can live with it.

    Raises:
        UnknownNameError: ``unknown_model``; only a plain id is looked for, never a path or a hub id.
        CheckpointError: a file is missing or damaged.
        ExperimentError: ``bad_experiments``.
    """
    models_dir = services.args.models_dir
    known = model != FAKE_CARD.id and find_by_id(model, (models_dir, BUNDLED))  # "fake" never means a folder
    if not known or model.startswith("."):  # drafts begin with a dot
        where = f"in {models_dir} or among the bundled models" if models_dir else "among the bundled models"
        raise UnknownNameError("unknown_model", f"no model {model[:200]!r} {where}")
    entry = find_captioner(model, models_dir)
    assert entry.path is not None  # it was found by its id
    verify_files(entry.path, entry.card)
    check_arms(services.args.experiments, ServedModels({**services.models.cards, model: entry.card}))
    return entry
