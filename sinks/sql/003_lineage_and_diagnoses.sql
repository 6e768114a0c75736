-- What the pipeline says since of each generation, and the views across generations: lineage, tries, storms, nodes of a
-- stream, bad cases, service levels. What depends on more than one generation is a view: a late parent changes it.

ALTER TABLE generations
    ADD COLUMN IF NOT EXISTS `attempt_ttft_text_ms` Nullable(Float64) COMMENT 'dispatch → first text of the committed attempt',
    ADD COLUMN IF NOT EXISTS `latency_provider_ms` Nullable(Float64) COMMENT 'the provider''s own processing time, as a header of its answer says it',
    ADD COLUMN IF NOT EXISTS `cache_hit` Nullable(Bool) COMMENT 'whether input came from the provider''s cache; null: it did not say',
    ADD COLUMN IF NOT EXISTS `cancel_at_ms` Nullable(Float64) COMMENT 'when the cancel was taken, since the request was accepted',
    ADD COLUMN IF NOT EXISTS `cancel_tokens_generated` Nullable(Int64) COMMENT 'estimated tokens that there were by then',
    ADD COLUMN IF NOT EXISTS `sampling` Nullable(String) COMMENT 'sampling fields of the request, canonical JSON',
    ADD COLUMN IF NOT EXISTS `postprocess_result` LowCardinality(Nullable(String)) COMMENT 'JSON at the end: ok, malformed, truncated, not_applicable; null: not checked';

CREATE TABLE IF NOT EXISTS slo_targets
(
    `slo` LowCardinality(String) COMMENT 'first_token_ms, time_per_token_ms, stall_ms or success',
    `model` LowCardinality(String) COMMENT 'model that it is for; empty for all others',
    `target` Float64 COMMENT 'a generation is good up to here; of success: not used',
    `objective` Float64 COMMENT 'share of generations that must be good',
    `updated` DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC') COMMENT 'the latest row stands'
)
ENGINE = ${REPLICATED}ReplacingMergeTree(updated)
ORDER BY (slo, model)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'Service levels of your own: a row here stands over the defaults of the view slo_compliance';

CREATE OR REPLACE VIEW generations_final AS
SELECT * EXCEPT (`partition`, `offset`) FROM generations FINAL;

-- Root and depth of each generation, and what is not the same as in the one before. A generation whose parent has no row
-- (yet) is a root. One that is its own ancestor, which nobody can be whose id the edge made, is its own root too.
CREATE OR REPLACE VIEW lineage AS
WITH RECURSIVE
    known AS
    (
        SELECT tenant, generation_id, toUUIDOrNull(ifNull(previous_generation_id, '')) AS parent, request_id
        FROM generations_final
    ),
    walk AS
    (
        SELECT tenant, generation_id, generation_id AS root, ifNull(request_id, toString(generation_id)) AS root_request_id,
               toInt64(0) AS depth
        FROM known
        WHERE parent IS NULL OR (tenant, assumeNotNull(parent)) NOT IN (SELECT tenant, generation_id FROM known)
        UNION ALL
        SELECT child.tenant, child.generation_id, walk.root, walk.root_request_id, walk.depth + 1
        FROM (SELECT tenant, generation_id, assumeNotNull(parent) AS parent FROM known WHERE parent IS NOT NULL) AS child
        INNER JOIN walk ON walk.tenant = child.tenant AND walk.generation_id = child.parent
        WHERE walk.depth < 1000
    )
SELECT
    own.tenant AS tenant,
    own.generation_id AS generation_id,
    own.start AS start,
    own.request_id AS request_id,
    own.previous_generation_id AS previous_generation_id,
    ifNull(parent.generation_id = toUUIDOrNull(ifNull(own.previous_generation_id, '')), 0) AS parent_known,
    if(own.previous_generation_id IS NULL, NULL, ifNull(own.lineage_kind, 'retry')) AS kind,
    if(walked.root = toUUID('00000000-0000-0000-0000-000000000000'), own.generation_id, walked.root) AS root,
    if(walked.root_request_id = '', ifNull(own.request_id, toString(own.generation_id)), walked.root_request_id) AS root_request_id,
    walked.depth AS depth,
    own.model AS model,
    length(own.attempts) AS attempts,
    own.terminal AS terminal,
    own.finish_reason AS finish_reason,
    own.error_code AS error_code,
    arrayFilter(
        changed -> changed != '',
        [
            if(ifNull(own.prompt_hash != parent.prompt_hash, 0), 'prompt', ''),
            if(ifNull(own.prompt_version != parent.prompt_version, 0), 'prompt_version', ''),
            if(ifNull(own.model != parent.model, 0), 'model', ''),
            if(ifNull(own.sampling != parent.sampling, 0), 'sampling', ''),
            if(arrayExists(edge -> has(edge.changed_inputs, 'context'), own.lineage), 'context', '')
        ]
    ) AS changed,
    own.output_hash != parent.output_hash AS answer_changed
FROM generations_final AS own
LEFT JOIN walk AS walked ON walked.tenant = own.tenant AND walked.generation_id = own.generation_id
LEFT JOIN
(
    SELECT tenant, generation_id, prompt_hash, prompt_version, model, sampling, output_hash FROM generations_final
) AS parent
ON parent.tenant = own.tenant AND toString(parent.generation_id) = lower(ifNull(own.previous_generation_id, ''));

-- The edges themselves, of attempts within a generation and of generations.
CREATE OR REPLACE VIEW lineage_edges AS
SELECT
    tenant,
    generation_id,
    start,
    if(position(edge.to_id, '/') > 0, 'attempt', 'generation') AS level,
    edge.kind AS kind,
    edge.from_id AS from_id,
    edge.to_id AS to_id,
    edge.changed_inputs AS changed_inputs
FROM generations_final
ARRAY JOIN lineage AS edge;

-- How often a request was tried, what all tries cost, and which of them gave what the user saw last. A request is the root
-- of a lineage under its request_id: a client that sends the same id again tries the same request again.
CREATE OR REPLACE VIEW tries_by_request AS
SELECT
    lineage.tenant AS tenant,
    lineage.root_request_id AS request_id,
    min(lineage.start) AS first_start,
    count() AS generations,
    max(lineage.depth) AS depth,
    sum(told.calls) AS attempts,
    sum(told.hedges) AS hedges,
    countIf(lineage.terminal = 'error') AS failed_generations,
    sum(billed.cost) AS provider_cost,
    sum(billed.unknown_lines) AS lines_without_amount,
    arrayDistinct(arrayFlatten(groupArray(billed.currencies))) AS currencies,
    argMaxIf(lineage.generation_id, (lineage.start, lineage.generation_id), told.content_events > 0) AS seen_generation_id,
    argMaxIf(told.seen_attempt, (lineage.start, lineage.generation_id), told.content_events > 0) AS seen_attempt,
    argMaxIf(told.seen_provider, (lineage.start, lineage.generation_id), told.content_events > 0) AS seen_provider,
    argMaxIf(lineage.model, (lineage.start, lineage.generation_id), told.content_events > 0) AS seen_model,
    countIf(told.content_events > 0) AS generations_with_content
FROM lineage
LEFT JOIN
(
    SELECT
        tenant,
        generation_id,
        content_events,
        length(attempts) AS calls,
        arrayCount(one -> startsWith(ifNull(one.reason, ''), 'hedge'), attempts) AS hedges,
        committed_attempt AS seen_attempt,
        arrayFirst(one -> one.attempt = committed_attempt, attempts).provider AS seen_provider
    FROM generations_final
) AS told ON told.tenant = lineage.tenant AND told.generation_id = lineage.generation_id
LEFT JOIN
(
    SELECT
        tenant,
        generation_id,
        sum(line.amount) AS cost,
        countIf(line.amount IS NULL) AS unknown_lines,
        groupUniqArray(line.currency) AS currencies
    FROM ledger_current AS line
    WHERE side = 'provider_cost'
    GROUP BY tenant, generation_id
) AS billed ON billed.tenant = lineage.tenant AND billed.generation_id = lineage.generation_id
GROUP BY tenant, request_id;

-- Repeated calls per provider and minute. A call is a retry when it is not the first of its generation and no hedge, or the
-- first of a generation that repeats another one. `storm`: at least ten of them, and at least half of all calls.
CREATE OR REPLACE VIEW retry_storms AS
SELECT
    minute,
    provider,
    count() AS attempts,
    countIf(is_retry) AS retries,
    countIf(is_hedge) AS hedges,
    countIf(outcome = 'failed') AS failed,
    uniqExact(tenant, generation_id) AS generations,
    uniqExact(tenant) AS tenants,
    arraySort(groupUniqArrayIf(ifNull(error_code, ''), outcome = 'failed')) AS error_codes,
    retries / attempts AS retry_share,
    retries >= 10 AND retries * 2 >= attempts AS storm
FROM
(
    SELECT
        toStartOfMinute(call.started) AS minute,
        call.tenant AS tenant,
        call.generation_id AS generation_id,
        call.provider AS provider,
        call.outcome AS outcome,
        call.error_code AS error_code,
        startsWith(ifNull(told.reason, ''), 'hedge') AS is_hedge,
        NOT is_hedge AND (call.attempt > 0 OR told.repeats) AS is_retry
    FROM attempts_final AS call
    LEFT JOIN
    (
        SELECT
            tenant,
            generation_id,
            one.attempt AS attempt,
            one.reason AS reason,
            previous_generation_id IS NOT NULL AND ifNull(lineage_kind, 'retry') IN ('retry', 'regenerate') AS repeats
        FROM generations_final
        ARRAY JOIN attempts AS one
    ) AS told ON told.tenant = call.tenant AND told.generation_id = call.generation_id AND told.attempt = call.attempt
)
GROUP BY minute, provider
HAVING retries > 0;

-- Diagnoses that need a second generation, or all calls of a minute; those of one generation are in `diagnoses`.
CREATE OR REPLACE VIEW diagnoses_across AS
SELECT
    own.tenant AS tenant,
    own.generation_id AS generation_id,
    own.start AS start,
    own.model AS model,
    'answer_changed_after_retry' AS name,
    toJSONString(
        map(
            'answered', ifNull(own.model, ''),
            'first', ifNull(parent.model, ''),
            'kind', ifNull(own.lineage_kind, 'retry'),
            'previous_generation_id', toString(parent.generation_id),
            'changed', arrayStringConcat(
                arrayFilter(
                    changed -> changed != '',
                    [
                        if(ifNull(own.prompt_hash != parent.prompt_hash, 0), 'prompt', ''),
                        if(ifNull(own.prompt_version != parent.prompt_version, 0), 'prompt_version', ''),
                        if(ifNull(own.model != parent.model, 0), 'model', ''),
                        if(ifNull(own.served_model != parent.served_model, 0), 'served_model', ''),
                        if(ifNull(own.sampling != parent.sampling, 0), 'sampling', '')
                    ]
                ),
                ','
            )
        )
    ) AS evidence
FROM generations_final AS own
INNER JOIN generations_final AS parent
ON parent.tenant = own.tenant AND toString(parent.generation_id) = lower(ifNull(own.previous_generation_id, ''))
WHERE ifNull(own.lineage_kind, 'retry') IN ('retry', 'regenerate')
  AND own.content_events > 0 AND parent.content_events > 0
  AND own.output_hash != parent.output_hash
UNION ALL
SELECT
    call.tenant AS tenant,
    call.generation_id AS generation_id,
    call.start AS start,
    CAST(call.model AS LowCardinality(Nullable(String))) AS model,
    'retry_storm' AS name,
    toJSONString(
        map(
            'attempts', toString(any(storm.attempts)),
            'minute', toString(storm.minute),
            'provider', toString(storm.provider),
            'retries', toString(any(storm.retries))
        )
    ) AS evidence
FROM attempts_final AS call
INNER JOIN (SELECT * FROM retry_storms WHERE storm) AS storm
ON storm.provider = call.provider AND storm.minute = toStartOfMinute(call.started)
WHERE call.attempt > 0
GROUP BY tenant, generation_id, start, model, storm.minute, storm.provider;

-- The nodes of a stream, in its order: stream_start, first_token, delta_emit, retry_or_fallback, cancel_or_timeout,
-- stream_end. Of two records of one seq the first stands, and nothing behind the first terminal.
CREATE OR REPLACE VIEW event_nodes AS
SELECT
    tenant,
    generation_id,
    start,
    row_number() OVER (PARTITION BY tenant, generation_id ORDER BY `offset` ASC, part ASC) - 1 AS position,
    node,
    seq,
    attempt,
    elapsed_ms,
    wall,
    kind,
    text,
    if(node IN ('first_token', 'delta_emit'), content_tokens, NULL) AS tokens_estimate,
    if(node = 'delta_emit', elapsed_ms - previous_content_ms, NULL) AS gap_ms,
    nullIf(multiIf(
        kind = 'attempt_start', JSONExtractString(payload, 'attempt_start', 'provider'),
        ''), '') AS provider,
    nullIf(multiIf(
        kind = 'message_start', JSONExtractString(payload, 'message_start', 'model'),
        kind = 'attempt_start', JSONExtractString(payload, 'attempt_start', 'model'),
        ''), '') AS model,
    nullIf(multiIf(
        kind = 'attempt_start', if(JSONHas(payload, 'attempt_start', 'reason'), JSONExtractString(payload, 'attempt_start', 'reason'), 'first'),
        kind = 'cancel_requested', if(JSONHas(payload, 'cancel', 'reason'), JSONExtractString(payload, 'cancel', 'reason'), 'user_abort'),
        kind = 'message_end', JSONExtractString(payload, 'message_end', 'finish_reason'),
        kind = 'error', JSONExtractString(payload, 'error', 'code'),
        ''), '') AS reason
FROM
(
    SELECT
        *,
        any(if(content_tokens > 0, elapsed_ms, NULL)) OVER (
            PARTITION BY tenant, generation_id, content_tokens > 0 ORDER BY `offset` ASC
            ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING
        ) AS previous_content_ms,
        multiIf(
            kind = 'message_start', ['stream_start'],
            content_tokens > 0 AND content_place = 1, ['first_token'],
            content_tokens > 0, ['delta_emit'],
            kind = 'attempt_start' AND attempt > 0, ['retry_or_fallback'],
            kind = 'cancel_requested', ['cancel_or_timeout'],
            kind = 'error' AND JSONExtractString(payload, 'error', 'finish_reason') = 'timeout', ['cancel_or_timeout', 'stream_end'],
            kind IN ('message_end', 'error'), ['stream_end'],
            []
        ) AS nodes
    FROM
    (
        SELECT
            *,
            row_number() OVER (PARTITION BY tenant, generation_id, content_tokens > 0 ORDER BY `offset` ASC) AS content_place
        FROM
        (
            SELECT
                *,
                if(
                    kind IN ('delta', 'tool_call_delta', 'citation_delta'),
                    arraySum(
                        one -> if(
                            JSONExtractString(one, 'text') != ''
                                AND JSONExtractString(one, 'type') IN ('text', 'reasoning', 'refusal', 'tool_call', 'citation'),
                            greatest(JSONExtractInt(one, 'tokens_estimate'), 1),
                            0
                        ),
                        JSONExtractArrayRaw(canonical)
                    ),
                    0
                ) AS content_tokens,
                if(seq IS NULL, 1, row_number() OVER (PARTITION BY tenant, generation_id, seq ORDER BY `offset` ASC)) AS copy,
                min(if(kind IN ('message_end', 'error'), `offset`, NULL)) OVER (PARTITION BY tenant, generation_id) AS terminal_offset
            FROM events FINAL
            WHERE kind IN ('message_start', 'delta', 'tool_call_delta', 'citation_delta', 'attempt_start', 'cancel_requested', 'message_end', 'error')
        )
        WHERE copy = 1 AND (terminal_offset IS NULL OR `offset` <= terminal_offset)
    )
)
ARRAY JOIN nodes AS node, arrayEnumerate(nodes) AS part;

-- Generations worth a look as a sample, each once: why, and what to do next. What was the client's own fault is left out.
CREATE OR REPLACE VIEW bad_cases AS
SELECT
    tenant,
    generation_id,
    start,
    model,
    arrayFirst(one -> one.attempt = ifNull(committed_attempt, one.attempt), attempts).provider AS provider,
    dialect,
    prompt_hash,
    prompt_version,
    finish_reason,
    error_code,
    postprocess_result,
    arrayConcat(
        arrayFilter(
            reason -> reason != '',
            [
                if(terminal = 'error', concat('error: ', ifNull(error_code, '')), ''),
                if(status = 'gap', 'gap', ''),
                if(finish_reason = 'content_filter', 'content_filter', ''),
                if(finish_reason = 'length', 'length', '')
            ]
        ),
        arrayMap(diagnosis -> diagnosis.name, diagnoses)
    ) AS why,
    multiIf(
        finish_reason = 'content_filter', 'safety review',
        postprocess_result = 'malformed', 'check prompt and schema, then repair',
        postprocess_result = 'truncated' OR finish_reason = 'length', 'raise the output limit, or offer continue',
        error_code IN ('queue_timeout', 'ttft_timeout'), 'another route, or a shorter prompt',
        error_code IN ('stall_timeout', 'decode_timeout', 'incomplete_upstream', 'edge_lost', 'timeout'), 'offer continue from the partial answer',
        retryable, 'send it again after the time that was named',
        terminal = 'error', 'read the provider''s error in attempts_final',
        status = 'gap', 'look for what the log lost',
        has(why, 'cost_after_cancel'), 'check that the provider stops when its socket closes',
        has(why, 'answer_changed_after_retry'), 'compare the answers',
        has(why, 'retry_storm'), 'see the view retry_storms',
        has(why, 'slow_first_token'), 'see the segment in its evidence',
        has(why, 'jittery_stream'), 'see the view stalls_by_provider',
        'look at it'
    ) AS follow_up
FROM generations_final
WHERE ifNull(error_code, '') NOT IN ('bad_request', 'unauthorized', 'forbidden', 'superseded') AND notEmpty(why);

-- Days, tenants and models against their service levels. The defaults stand here; a row of `slo_targets` stands over them.
-- What a client cancelled or asked wrongly is nobody's failure and not counted.
CREATE OR REPLACE VIEW slo_compliance AS
SELECT
    day,
    tenant,
    model,
    slo,
    target,
    objective,
    count() AS eligible,
    countIf(good) AS good_generations,
    good_generations / eligible AS share,
    share >= objective AS met,
    1 - (1 - share) / nullIf(1 - objective, 0) AS error_budget_left
FROM
(
    SELECT
        measured.day AS day,
        measured.tenant AS tenant,
        measured.model AS model,
        measured.slo AS slo,
        multiIf(own.objective > 0, own.target, common.objective > 0, common.target, measured.default_target) AS target,
        multiIf(own.objective > 0, own.objective, common.objective > 0, common.objective, measured.default_objective) AS objective,
        if(measured.slo = 'success', measured.value = 0, ifNull(measured.value <= target, 0)) AS good
    FROM
    (
        SELECT
            toDate(start) AS day,
            tenant,
            ifNull(model, '') AS model,
            level.1 AS slo,
            level.2 AS default_target,
            level.3 AS default_objective,
            level.4 AS value
        FROM
        (
            SELECT
                start,
                tenant,
                model,
                arrayJoin(
                    arrayFilter(
                        level -> level.5,
                        [
                            ('first_token_ms', toFloat64(2000), toFloat64(0.95), toNullable(ttft_ms), ttft_ms IS NOT NULL OR terminal = 'error'),
                            ('time_per_token_ms', toFloat64(100), toFloat64(0.95), toNullable(tpot_ms), tpot_ms IS NOT NULL),
                            ('stall_ms', toFloat64(0), toFloat64(0.95),
                             toNullable(stall_ms + arraySum(stall -> if(stall.counted OR stall.attempt != ifNull(committed_attempt, -1), 0, stall.length_ms), stalls)),
                             stall_ms IS NOT NULL),
                            ('success', toFloat64(0), toFloat64(0.99), toNullable(toFloat64(terminal = 'error')), true)
                        ]
                    )
                ) AS level
            FROM generations_final
            WHERE ifNull(finish_reason, '') != 'cancelled'
              AND ifNull(error_code, '') NOT IN ('bad_request', 'unauthorized', 'forbidden', 'superseded', 'cancelled')
        )
    ) AS measured
    LEFT JOIN (SELECT slo, model, target, objective FROM slo_targets FINAL WHERE model != '') AS own
    ON own.slo = measured.slo AND own.model = measured.model
    LEFT JOIN (SELECT slo, target, objective FROM slo_targets FINAL WHERE model = '') AS common
    ON common.slo = measured.slo
)
GROUP BY day, tenant, model, slo, target, objective;

-- What came of cancelled generations: tokens that nobody was given, tokens after the cancel, and what it cost.
CREATE OR REPLACE VIEW cancel_waste AS
SELECT
    toDate(own.start) AS day,
    own.tenant AS tenant,
    ifNull(own.model, '') AS model,
    ifNull(own.cancel_reason, '') AS cancel_reason,
    count() AS generations,
    sum(own.tokens_generated - own.tokens_delivered) AS tokens_undelivered,
    sum(greatest(own.tokens_generated - own.cancel_tokens_generated, 0)) AS tokens_after_cancel,
    countIf(own.cancel_tokens_generated IS NULL) AS generations_unmeasured,
    sum(billed.cost) AS provider_cost,
    sum(billed.unknown_lines) AS lines_without_amount
FROM generations_final AS own
LEFT JOIN
(
    SELECT tenant, generation_id, sum(line.amount) AS cost, countIf(line.amount IS NULL) AS unknown_lines
    FROM ledger_current AS line
    WHERE side = 'provider_cost'
    GROUP BY tenant, generation_id
) AS billed ON billed.tenant = own.tenant AND billed.generation_id = own.generation_id
WHERE own.finish_reason = 'cancelled'
GROUP BY day, tenant, model, cancel_reason;

-- Requests are the weights of all figures but two: tokens per second and itl_ms, whose weights are tokens.
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
    if(sum(active_generation_ms) > 0, sum(usage_output) * 1000 / sum(active_generation_ms), NULL) AS tokens_per_second_active,
    sumIf(generation_ms, tpot_ms IS NOT NULL)
        / nullIf(sumIf(usage_output - 1 - if(tps_null_reason = 'hidden_reasoning', ifNull(usage_reasoning, 0), 0), tpot_ms IS NOT NULL), 0) AS itl_ms
FROM generations_final
GROUP BY day, tenant, model;
