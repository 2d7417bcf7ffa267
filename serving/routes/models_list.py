"""GET /v1/models: what is served, in OpenAI's list shape."""

from fastapi import APIRouter

from models.card import CaptionerCard, MixCard, SpectrumCard
from serving.schemas import ModelList, ModelOut, SpectrumOut
from serving.services import ServicesDep

router = APIRouter()


@router.get("/v1/models", tags=["models"])
async def models(services: ServicesDep) -> ModelList:
    """The served models, the default first, with what their cards say."""
    default = services.models.default
    return ModelList(data=[model_out(model, card, model == default) for model, card in services.models.cards.items()])


def model_out(model: str, card: CaptionerCard, default: bool) -> ModelOut:
    """What its card says of a served model."""
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
        directions=sorted(card.directions) if isinstance(card, MixCard | SpectrumCard) else [],
        spectrum=_spectrum(card),
        data=card.data,
        measurements=card.measurements,
    )


def _spectrum(card: CaptionerCard) -> SpectrumOut | None:
    if not isinstance(card, SpectrumCard):
        return None
    return SpectrumOut(default=card.default, grid=card.grid, calibration=card.calibration)
