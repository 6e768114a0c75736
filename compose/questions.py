"""Ready questions for ``tokentrail sql NAME``: what people ask first, each over the shipped views.

Invariant: each reads through a view that counts no row twice; a test runs every one. Before this file: ``commands/sql``.
After it: the views of ``sinks/sql``.
"""

from typing import NamedTuple


class Question(NamedTuple):
    """A question in words and in SQL."""

    title: str
    sql: str


QUESTIONS: dict[str, Question] = {
    "latest": Question(
        "What ran lately?",
        """SELECT generation_id, model, coalesce(error_code, finish_reason) AS outcome, round(ttft_ms) AS ttft_ms,
                  stall_count AS stalls
           FROM generations_final ORDER BY start DESC LIMIT 20""",
    ),
    "live": Question("What runs now?", "SELECT * FROM live_generations LIMIT 50"),
    "latency": Question("How fast is each model?", "SELECT * FROM latency_by_model"),
    "slowest": Question(
        "Which generations were slow to say anything?",
        """SELECT generation_id, tenant, model, round(ttft_ms) AS ttft_ms, round(latency_queue_ms) AS queue_ms
           FROM generations_final WHERE ttft_ms IS NOT NULL ORDER BY ttft_ms DESC LIMIT 20""",
    ),
    "stalls": Question(
        "Where did streams fall silent, and for how long?",
        "SELECT * FROM stalls ORDER BY length_ms DESC LIMIT 20",
    ),
    "stalls-by-model": Question(
        "Which models stall most?",
        """SELECT model, count() AS generations, sum(stall_count) AS stalls, round(sum(stall_ms)) AS stall_ms,
                  round(max(longest_stall_ms)) AS longest_ms
           FROM generations_final GROUP BY model ORDER BY stall_ms DESC""",
    ),
    "outcomes": Question(
        "How do generations end?",
        """SELECT model, terminal, finish_reason, error_code, count() AS generations
           FROM generations_final GROUP BY ALL ORDER BY generations DESC""",
    ),
    "errors": Question(
        "What went wrong lately?",
        """SELECT start, generation_id, tenant, model, error_code, error_message, retryable
           FROM generations_final WHERE terminal = 'error' ORDER BY start DESC LIMIT 20""",
    ),
    "attempts": Question(
        "How do calls to providers end?",
        """SELECT provider, model, outcome, error_code, count() AS attempts, sum(committed) AS committed,
                  round(quantile(0.5)(elapsed_ms)) AS p50_ms
           FROM attempts_final GROUP BY ALL ORDER BY attempts DESC""",
    ),
    "cost-by-tenant": Question(
        "What did each tenant cost, and what is it charged?",
        """SELECT tenant, side, currency, sum(amount) AS total, countIf(amount IS NULL) AS lines_without_amount
           FROM ledger_current GROUP BY ALL ORDER BY tenant, side""",
    ),
    "cost-by-model": Question(
        "What did each model cost, by bucket?",
        """SELECT provider, model, bucket, sum(quantity) AS tokens, sum(amount) AS total
           FROM ledger_current WHERE side = 'provider_cost' GROUP BY ALL ORDER BY total DESC""",
    ),
    "unpriced": Question(
        "What could not be priced?",
        """SELECT provider, model, status, count() AS lines FROM ledger_current
           WHERE amount IS NULL GROUP BY ALL ORDER BY lines DESC""",
    ),
    "cancelled": Question(
        "What was cancelled, by whom, and how far had it come?",
        """SELECT start, generation_id, cancel_source, cancel_mode, cancel_reason, cancel_stage, tokens_generated
           FROM generations_final WHERE finish_reason = 'cancelled' ORDER BY start DESC LIMIT 20""",
    ),
    "lost": Question(
        "Which generations lost their edge, or a range of events?",
        """SELECT start, generation_id, edge_id, error_code, status, missing FROM generations_final
           WHERE error_code = 'edge_lost' OR status = 'gap' ORDER BY start DESC LIMIT 20""",
    ),
    "tokens": Question(
        "How many tokens, by model, and who counted them?",
        """SELECT model, usage_source, count() AS generations, sum(usage_input) AS input, sum(usage_output) AS output
           FROM generations_final GROUP BY ALL ORDER BY output DESC""",
    ),
    "kinds": Question(
        "What is in the log?",
        """SELECT kind, count() AS records, formatReadableSize(sum(length(raw))) AS raw
           FROM events FINAL GROUP BY kind ORDER BY records DESC""",
    ),
    "freshness": Question(
        "How new is the newest row?",
        """SELECT max(end_wall) AS newest_end, dateDiff('millisecond', newest_end, now64(6)) AS age_ms
           FROM generations_final""",
    ),
    "stalls-by-provider": Question(
        "Which providers fall silent most, day by day?",
        "SELECT * FROM stalls_by_provider ORDER BY day DESC, stall_ms DESC LIMIT 50",
    ),
    "segments": Question(
        "Where does the time go, by model?",
        """SELECT model, count() AS generations, round(avg(latency_gateway_ms), 1) AS gateway_ms,
                  round(avg(latency_queue_ms), 1) AS queue_ms, round(avg(latency_prefill_ms), 1) AS prefill_ms,
                  round(avg(latency_decode_ms), 1) AS decode_ms, round(avg(latency_postprocess_ms), 1) AS postprocess_ms,
                  round(avg(latency_unattributed_ms), 1) AS unattributed_ms, round(avg(latency_total_ms), 1) AS total_ms
           FROM generations_final GROUP BY model ORDER BY generations DESC""",
    ),
    "tries": Question(
        "How often was each request tried, what did all tries cost, and which gave the answer?",
        """SELECT request_id, generations, attempts, hedges, provider_cost, lines_without_amount,
                  seen_generation_id, seen_attempt, seen_provider
           FROM tries_by_request ORDER BY attempts DESC, first_start DESC LIMIT 20""",
    ),
    "storms": Question(
        "When did we call providers again and again?",
        "SELECT * FROM retry_storms ORDER BY minute DESC LIMIT 50",
    ),
    "lineage": Question(
        "Which generations come from which, and what changed?",
        """SELECT root, depth, generation_id, kind, model, changed, answer_changed, attempts, error_code
           FROM lineage WHERE root IN (SELECT root FROM lineage WHERE depth > 0) ORDER BY root DESC, depth LIMIT 50""",
    ),
    "diagnoses": Question(
        "What is wrong most often?",
        """SELECT name, model, count() AS generations, max(start) AS latest, any(generation_id) AS example
           FROM diagnoses GROUP BY ALL ORDER BY generations DESC""",
    ),
    "bad-cases": Question(
        "Which generations are worth a look, and what is to be done?",
        "SELECT start, generation_id, model, why, follow_up FROM bad_cases ORDER BY start DESC LIMIT 50",
    ),
    "slo": Question(
        "Are the service levels met?",
        "SELECT * FROM slo_compliance ORDER BY day DESC, tenant, model, slo LIMIT 100",
    ),
    "cancel-waste": Question(
        "What did cancelled generations waste?", "SELECT * FROM cancel_waste ORDER BY day DESC LIMIT 50"
    ),
    "aborts": Question(
        "How many of a thousand generations ended before their time, and why?",
        "SELECT * FROM abort_rates ORDER BY day DESC, tenant, model, reason LIMIT 100",
    ),
    "cancels": Question(
        "What did each cancel meet, and what did it release when?",
        "SELECT * FROM cancels ORDER BY start DESC LIMIT 20",
    ),
    "dead-letters": Question(
        "Which records could not be processed?", "SELECT * FROM dead_letters FINAL ORDER BY 1 LIMIT 20"
    ),
}
