-- Edges look a Responses answer up by the provider's id once control has forgotten it.
ALTER TABLE generations
    ADD INDEX IF NOT EXISTS upstream_id_bloom upstream_id TYPE bloom_filter(0.01) GRANULARITY 4;
