"""Files for finance, made from the ledger in SQL: deterministic, exact, never half. ``bill``: a tenant's month."""
