-- The views. Each counts a row once, whatever was inserted twice and whatever was merged: through FINAL, or by grouping
-- over the key. Kafka's positions of derived records are left out: an equal record that was emitted again lies elsewhere.

CREATE OR REPLACE VIEW events_final AS
SELECT * FROM events FINAL;

CREATE OR REPLACE VIEW attempts_final AS
SELECT * EXCEPT (`partition`, `offset`) FROM attempts FINAL;

CREATE OR REPLACE VIEW generations_final AS
SELECT * EXCEPT (`partition`, `offset`) FROM generations FINAL;

CREATE OR REPLACE VIEW stalls AS
SELECT
    tenant,
    generation_id,
    start,
    model,
    arrayFirst(a -> a.attempt = stall.attempt, attempts).provider AS provider,
    stall.attempt AS attempt,
    stall.seq AS seq,
    stall.content_index AS content_index,
    stall.start_ms AS start_ms,
    stall.length_ms AS length_ms,
    stall.tokens_estimate AS tokens_estimate,
    stall.stage AS stage,
    stall.ended_by AS ended_by,
    stall.counted AS counted
FROM generations_final
ARRAY JOIN stalls AS stall;

CREATE OR REPLACE VIEW diagnoses AS
SELECT
    tenant,
    generation_id,
    start,
    model,
    diagnosis.name AS name,
    diagnosis.evidence AS evidence
FROM generations_final
ARRAY JOIN diagnoses AS diagnosis;

-- The current lines of an attempt and side: those of its highest revision, all of them together (a later revision may
-- have other buckets). Where one of them has several contents, the first in log order stands, and `conflicts` says how
-- many others there are: they are quarantined, not summed.
CREATE OR REPLACE VIEW ledger_current AS
SELECT * EXCEPT (place, latest, `partition`, `offset`, precedence)
FROM
(
    SELECT
        *,
        max(revision) OVER (PARTITION BY tenant, generation_id, attempt, side) AS latest,
        row_number() OVER (PARTITION BY tenant, generation_id, attempt, side, bucket, revision ORDER BY `offset` ASC) AS place,
        count() OVER (PARTITION BY tenant, generation_id, attempt, side, bucket, revision) - 1 AS conflicts
    FROM ledger FINAL
)
WHERE place = 1 AND revision = latest;

-- Started within the last day, and neither a terminal nor a finalized row yet.
CREATE OR REPLACE VIEW live_generations AS
SELECT
    tenant,
    generation_id,
    any(events.start) AS start,
    argMinIf(JSONExtractString(payload, 'message_start', 'model'), events.`offset`, kind = 'message_start') AS model,
    argMin(edge_id, events.`offset`) AS edge_id,
    maxIf(seq, seq IS NOT NULL) AS last_seq,
    max(attempt) AS last_attempt,
    max(elapsed_ms) AS last_elapsed_ms,
    max(wall) AS last_wall
FROM events
WHERE events.start >= now64(6, 'UTC') - INTERVAL 1 DAY
  AND (tenant, generation_id) NOT IN (SELECT tenant, generation_id FROM generations)
GROUP BY tenant, generation_id
HAVING countIf(kind = 'message_start') > 0 AND countIf(kind IN ('message_end', 'error')) = 0;

-- Requests are the weights of all figures but tokens per second, whose weights are tokens.
CREATE OR REPLACE VIEW latency_by_model AS
SELECT
    toDate(start) AS day,
    tenant,
    ifNull(model, '') AS model,
    count() AS generations,
    countIf(terminal = 'error') AS errors,
    quantileExact(0.5)(ttft_ms) AS ttft_p50_ms,
    quantileExact(0.95)(ttft_ms) AS ttft_p95_ms,
    quantileExact(0.99)(ttft_ms) AS ttft_p99_ms,
    quantileExact(0.5)(e2e_ms) AS e2e_p50_ms,
    quantileExact(0.99)(e2e_ms) AS e2e_p99_ms,
    quantileExact(0.5)(tpot_ms) AS tpot_p50_ms,
    quantileExact(0.5)(active_generation_ms) AS active_generation_p50_ms,
    sum(usage_output) AS output_tokens,
    if(sum(active_generation_ms) > 0, sum(usage_output) * 1000 / sum(active_generation_ms), NULL) AS tokens_per_second_active
FROM generations_final
GROUP BY day, tenant, model;

CREATE OR REPLACE VIEW stalls_by_provider AS
SELECT
    toDate(start) AS day,
    tenant,
    ifNull(provider, '') AS provider,
    ifNull(model, '') AS model,
    countIf(counted) AS stall_count,
    sumIf(length_ms, counted) AS stall_ms,
    maxIf(length_ms, counted) AS longest_stall_ms,
    countIf(NOT counted) AS unclosed,
    uniqExact(generation_id) AS generations
FROM stalls
GROUP BY day, tenant, provider, model;

-- null is unmeasured: such lines are counted beside the sum, never as zero in it.
CREATE OR REPLACE VIEW usage_by_bucket AS
SELECT
    toDate(started) AS day,
    tenant,
    provider,
    model,
    bucket,
    usage_source,
    sum(line.quantity) AS quantity,
    count() AS lines,
    countIf(line.quantity IS NULL) AS unmeasured_lines
FROM ledger_current AS line
WHERE side = 'provider_cost'
GROUP BY day, tenant, provider, model, bucket, usage_source;

CREATE OR REPLACE VIEW cost_by_tenant_day AS
SELECT
    toDate(started) AS day,
    tenant,
    side,
    currency,
    sum(line.amount) AS amount,
    count() AS lines,
    countIf(line.status = 'unpriced') AS unpriced_lines,
    countIf(line.amount IS NULL) AS lines_without_amount,
    sum(line.conflicts) AS conflicts
FROM ledger_current AS line
GROUP BY day, tenant, side, currency;

-- One row per attempt as its generation tells it, beside what it used and cost in the end.
CREATE OR REPLACE VIEW attempts_of_generations AS
SELECT
    tenant,
    generation_id,
    start,
    one.attempt AS attempt,
    one.provider AS provider,
    one.model AS model,
    one.reason AS reason,
    one.outcome AS outcome,
    one.error_code AS error_code,
    one.committed AS committed,
    one.backoff_ms AS backoff_ms,
    one.input AS input_tokens,
    one.output AS output_tokens
FROM generations_final
ARRAY JOIN attempts AS one;
