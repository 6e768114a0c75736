-- What a generation gave back at its end, and when; what a cancel met beside its stage. One row of all that for each
-- cancelled generation: `cancels`.
ALTER TABLE generations
    ADD COLUMN IF NOT EXISTS `cancel_last_seq` Nullable(Int64) COMMENT 'last seq that a reader of its edge was sent before the cancel: of its last event id',
    ADD COLUMN IF NOT EXISTS `cancel_disconnect_reason` LowCardinality(Nullable(String)) COMMENT 'why the last reader that left before the cancel had gone',
    ADD COLUMN IF NOT EXISTS `cancel_tool_call_id` Nullable(String) COMMENT 'tool call that was reported last before the cancel',
    ADD COLUMN IF NOT EXISTS `cancel_tool_status` LowCardinality(Nullable(String)) COMMENT 'what was reported of it',
    ADD COLUMN IF NOT EXISTS `cancel_tool_side_effect_committed` Nullable(Bool) COMMENT 'whether it had done something that stays',
    ADD COLUMN IF NOT EXISTS `cancel_tool_compensation_id` Nullable(String) COMMENT 'what undoes that',
    ADD COLUMN IF NOT EXISTS `released_admission_slot_ms` Nullable(Float64) COMMENT 'admission slot given back, since the request was accepted; null here and below: there was none, or its edge did not say',
    ADD COLUMN IF NOT EXISTS `released_upstream_socket_ms` Nullable(Float64) COMMENT 'last provider''s socket given back',
    ADD COLUMN IF NOT EXISTS `released_kv_cache_ms` Nullable(Float64) COMMENT 'last provider''s KV cache counted as free: when its socket closed',
    ADD COLUMN IF NOT EXISTS `released_memory_window_ms` Nullable(Float64) COMMENT 'memory window: kept until then at the most, for readers',
    ADD COLUMN IF NOT EXISTS `released_budget_reservation_ms` Nullable(Float64) COMMENT 'budget reservation given back',
    ADD COLUMN IF NOT EXISTS `released_claim_ms` Nullable(Float64) COMMENT 'idempotency claim: void or out of its day from then on';

CREATE OR REPLACE VIEW generations_final AS
SELECT * EXCEPT (`partition`, `offset`) FROM generations FINAL;

CREATE OR REPLACE VIEW cancels AS
SELECT
    tenant,
    generation_id,
    start,
    model,
    finish_reason,
    cancel_mode AS mode,
    cancel_reason AS reason,
    cancel_source AS source,
    cancel_requested_by AS requested_by,
    cancel_stage,
    cancel_at_ms,
    tokens_generated,
    tokens_delivered,
    released_admission_slot_ms,
    released_upstream_socket_ms,
    released_kv_cache_ms,
    released_memory_window_ms,
    released_budget_reservation_ms,
    released_claim_ms,
    greatest(released_upstream_socket_ms - cancel_at_ms, 0) AS socket_after_ms,
    cancel_disconnect_reason AS disconnect_reason,
    cancel_last_seq AS last_event_seq,
    cancel_tool_call_id AS tool_call_id,
    cancel_tool_status AS tool_status,
    cancel_tool_side_effect_committed AS side_effect_committed,
    cancel_tool_compensation_id AS compensation_id,
    usage_source,
    if(coalesce(usage_input, usage_cache_read, usage_cache_write, usage_output) IS NULL, NULL,
        ifNull(usage_input, 0) + ifNull(usage_cache_read, 0) + ifNull(usage_cache_write, 0) + ifNull(usage_output, 0)) AS billable_units,
    cancel_policy
FROM generations_final
WHERE cancel_mode IS NOT NULL;
