-- A restart is a repeat like a retry: the edge begins it where a client asked for one after a broken answer.

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
            previous_generation_id IS NOT NULL AND ifNull(lineage_kind, 'retry') IN ('retry', 'regenerate', 'restart') AS repeats
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
WHERE ifNull(own.lineage_kind, 'retry') IN ('retry', 'regenerate', 'restart')
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
