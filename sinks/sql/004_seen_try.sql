-- How often a request was tried, what all tries cost, and which of them gave what the user saw last (null: nobody saw
-- anything). A request is the root of a lineage under its request_id: a client that sends the same id again tries the same
-- request again.
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
    argMaxIf(toNullable(lineage.generation_id), (lineage.start, lineage.generation_id), told.content_events > 0) AS seen_generation_id,
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
