-- How many generations ended before their time, of a thousand, and why: the same words as `sse_abort_rate_permille`, by day.
-- There it is connections, here generations: one that was resumed to its end is none.
CREATE OR REPLACE VIEW abort_rates AS
SELECT
    day,
    tenant,
    model,
    counted.1 AS reason,
    generations,
    counted.2 AS aborted,
    1000 * counted.2 / generations AS permille
FROM
(
    SELECT
        toDate(start) AS day,
        tenant,
        ifNull(model, '') AS model,
        count() AS generations,
        [
            ('client_abort', countIf(why = 'client_abort')),
            ('network_reset', countIf(why = 'network_reset')),
            ('server_cancel', countIf(why = 'server_cancel')),
            ('timeout', countIf(why = 'timeout'))
        ] AS counts
    FROM
    (
        SELECT
            start,
            tenant,
            model,
            multiIf(
                ifNull(finish_reason, '') = 'timeout', 'timeout',
                ifNull(error_code, '') IN ('edge_lost', 'log_unavailable', 'erased', 'resume_expired'), 'server_cancel',
                ifNull(finish_reason, '') != 'cancelled', '',
                ifNull(cancel_reason, '') = 'client_disconnect',
                    if(ifNull(last_detach_reason, '') IN ('network_reset', 'timeout'), assumeNotNull(last_detach_reason), 'client_abort'),
                ifNull(cancel_reason, '') = 'policy_violation' OR ifNull(cancel_source, '') NOT IN ('api', 'page'), 'server_cancel',
                'client_abort'
            ) AS why
        FROM generations_final
    )
    GROUP BY day, tenant, model
)
ARRAY JOIN counts AS counted;
