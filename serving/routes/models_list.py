"""GET /v1/models: what is served, in OpenAI's list shape."""

from fastapi import APIRouter

from models.card import CaptionerCard
from serving.schemas import ModelList, ModelOut
from serving.services import ServicesDep

router = APIRouter()


@router.get("/v1/models", tags=["models"])
async def models(services: ServicesDep) -> ModelList:
    """The served models, the default first, with what their cards say."""
    default = services.models.default
    return ModelList(data=[_model(model, card, model == default) for model, card in services.models.cards.items()])


def _model(model: str, card: CaptionerCard, default: bool) -> ModelOut:
    objective = card.objective
    return ModelOut(
        id=model,
        created=0,
        default=default,
        description=card.description,
        family=card.family,
        licence=card.licence,
        objective=objective.name if objective else None,
        lambda_=objective.options.get("mle_weight") if objective else None,
        data=card.data,
        measurements=card.measurements,
    )
