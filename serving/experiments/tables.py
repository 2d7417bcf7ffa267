"""The tables of the ledger. Whoever changes them raises SCHEMA_VERSION."""

from sqlalchemy import Boolean, Column, Double, ForeignKey, Index, Integer, MetaData, SmallInteger, Table, Text

SCHEMA_VERSION = 1

METADATA = MetaData()

SCHEMA = Table("limner_schema", METADATA, Column("version", Integer, nullable=False))

OUTCOMES = Table(
    "limner_outcomes",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("experiment", Text, nullable=False),
    Column("arm", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("created_at_s", Double, nullable=False),
    Column("sampled", Boolean, nullable=False),
    Column("clip_score", Double),
    Column("scorer", Text),
    Column("words", Integer),
    Column("latency_ms", Double),
    Column("caption", Text, nullable=False),
    Column("error", Text),
    Column("draw", Double, nullable=False),  # uniform in (0, 1), by the id: its order is a random one
    Index("limner_outcomes_units", "experiment", "arm", "unit"),
    Index("limner_outcomes_draws", "experiment", "arm", "draw"),
)

VOTES = Table(
    "limner_votes",
    METADATA,
    Column("outcome_id", Text, ForeignKey(OUTCOMES.c.id), primary_key=True),
    Column("value", SmallInteger, nullable=False),
    Column("created_at_s", Double, nullable=False),
)
