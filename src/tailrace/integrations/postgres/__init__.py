"""The journal in a PostgreSQL database, for any number of machines."""

from __future__ import annotations

from tailrace.plugins import Integration, StoreKind

INTEGRATION = Integration(
    name="postgres",
    title="PostgreSQL",
    extra="postgres",
    library="asyncpg",
    store=StoreKind(
        schemes=("postgresql", "postgres"),
        example="postgresql://…",
        open=".store:PostgresJournal.open",
        backup_command=".address:dump_command",
        password_env="PGPASSWORD",  # noqa: S106 - the variable, as every program of PostgreSQL reads it
    ),
)
