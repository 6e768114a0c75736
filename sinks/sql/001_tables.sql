-- The tables. A row is identified by what never changes (the key of its ORDER BY); copies of one row become one in a
-- merge and are one in every shipped view. Rows are partitioned by the time in the generation's UUIDv7, so that all
-- copies of a row meet in one partition. No Enum: a new word must never poison an insert.
-- ${REPLICATED} is empty on one server and `Replicated` on a cluster.

CREATE TABLE IF NOT EXISTS events
(
    `partition` Int32 COMMENT 'partition of tokentrail.events.v1',
    `offset` Int64 COMMENT 'offset there; of a record in parts: of its last part',
    `tenant` LowCardinality(String) COMMENT 'whose key made the request',
    `generation_id` UUID COMMENT 'the stream: UUIDv7, the key in the log',
    `start` DateTime64(6, 'UTC') COMMENT 'the time in generation_id',
    `key_id` LowCardinality(String) COMMENT 'id of the API key',
    `dialect` LowCardinality(String) COMMENT 'openai.chat, openai.responses or anthropic.messages',
    `kind` LowCardinality(String) COMMENT 'what the record is: message_start, delta, frame, message_end, heartbeat, …',
    `seq` Nullable(Int64) COMMENT 'number from 0 of a numbered record; null for trace records',
    `after_seq` Nullable(Int64) COMMENT 'of trace records: the last seq before it',
    `attempt` Int32 COMMENT 'call to a provider that it belongs to, from 0',
    `wall` DateTime64(6, 'UTC') COMMENT 'wall clock of the writer, for people only',
    `edge_id` LowCardinality(String) COMMENT 'process that wrote it',
    `elapsed_ms` Nullable(Float64) COMMENT 'since the request was accepted, monotonic; null where the owner edge did not write it',
    `paused_ms` Float64 COMMENT 'how long the edge itself paused reading before it',
    `raw_event` LowCardinality(Nullable(String)) COMMENT 'SSE event name in the dialect; null for none',
    `raw` Nullable(String) COMMENT 'the exact SSE data in the dialect' CODEC(ZSTD(1)),
    `text` String COMMENT 'its text parts, joined' CODEC(ZSTD(1)),
    `canonical` String COMMENT 'what was understood of it: JSON array of canonical parts; empty for none' CODEC(ZSTD(1)),
    `payload` String COMMENT 'what its kind has of its own: JSON object by sub-record; empty for none' CODEC(ZSTD(1)),
    `parts` Int32 COMMENT 'records of the log that it was joined from, 1 for a whole one'
)
ENGINE = ${REPLICATED}ReplacingMergeTree
PARTITION BY toYYYYMMDD(start)
ORDER BY (tenant, generation_id, `partition`, `offset`)
TTL toDateTime(start) + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1
COMMENT 'Every record of the log, for 30 days';

CREATE TABLE IF NOT EXISTS attempts
(
    `partition` Int32 COMMENT 'partition of tokentrail.attempts.v1',
    `offset` Int64 COMMENT 'offset there',
    `tenant` LowCardinality(String) COMMENT 'whose key made the request',
    `generation_id` UUID COMMENT 'the stream that it was made for',
    `attempt` Int32 COMMENT 'number of the call within its generation, from 0',
    `revision` Int64 COMMENT '0: the orphan finder''s word, 1: the edge''s own; the highest stands',
    `start` DateTime64(6, 'UTC') COMMENT 'the time in generation_id',
    `key_id` LowCardinality(String) COMMENT 'id of the API key',
    `dialect` LowCardinality(String) COMMENT 'openai.chat, openai.responses or anthropic.messages',
    `edge_id` LowCardinality(String) COMMENT 'edge that made the call',
    `wall` DateTime64(6, 'UTC') COMMENT 'wall clock at its end',
    `request_id` String COMMENT 'the product''s request',
    `provider` LowCardinality(String) COMMENT 'who was called',
    `model` LowCardinality(String) COMMENT 'model that was asked for at the provider',
    `served_model` LowCardinality(Nullable(String)) COMMENT 'model that the provider says it used',
    `started` DateTime64(6, 'UTC') COMMENT 'start instant: prices are looked up at it',
    `outcome` LowCardinality(String) COMMENT 'ok, failed, cancelled or lost',
    `committed` Bool COMMENT 'whether its content is what the client saw',
    `dispatch` LowCardinality(String) COMMENT 'how far the call came: not_connected, refused, sent, accepted',
    `service_tier` LowCardinality(Nullable(String)) COMMENT 'the provider''s tier',
    `region` LowCardinality(Nullable(String)) COMMENT 'the provider''s region',
    `pool_id` LowCardinality(Nullable(String)) COMMENT 'pool that served it',
    `model_route` LowCardinality(Nullable(String)) COMMENT 'route that chose it',
    `error_code` LowCardinality(Nullable(String)) COMMENT 'our code of its failure',
    `upstream_status` Nullable(Int64) COMMENT 'HTTP status of the provider''s error',
    `upstream_error` String COMMENT 'the provider''s error as JSON; empty for none' CODEC(ZSTD(1)),
    `finish_reason` LowCardinality(Nullable(String)) COMMENT 'our word for how the answer ended',
    `usage_input` Nullable(Int64) COMMENT 'uncached input tokens; null is unmeasured, never zero',
    `usage_cache_read` Nullable(Int64) COMMENT 'input tokens read from a cache',
    `usage_cache_write` Nullable(Int64) COMMENT 'input tokens written to a cache',
    `usage_cache_write_1h` Nullable(Int64) COMMENT 'of usage_cache_write: kept for an hour',
    `usage_output` Nullable(Int64) COMMENT 'output tokens, reasoning included',
    `usage_reasoning` Nullable(Int64) COMMENT 'of usage_output: reasoning',
    `usage_input_audio` Nullable(Int64) COMMENT 'of usage_input: audio',
    `usage_output_audio` Nullable(Int64) COMMENT 'of usage_output: audio',
    `usage_server_tool_requests` Nullable(Int64) COMMENT 'calls of the provider''s own tools',
    `usage_source` LowCardinality(String) COMMENT 'reported, partial_reported, estimated or none',
    `usage_flags` Array(String) COMMENT 'what is odd about the usage',
    `usage_raw` Nullable(String) COMMENT 'the provider''s reports as received, a JSON array' CODEC(ZSTD(1)),
    `possibly_billed` Bool COMMENT 'it may have cost something although nothing was reported',
    `dispatched_ms` Nullable(Float64) COMMENT 'dispatch, since the request was accepted',
    `first_content_ms` Nullable(Float64) COMMENT 'first content, since the request was accepted',
    `last_content_ms` Nullable(Float64) COMMENT 'last content, since the request was accepted',
    `content_events` Int64 COMMENT 'provider events with content',
    `text_events` Int64 COMMENT 'provider events with text',
    `bytes_seen` Int64 COMMENT 'bytes of content that came from the provider',
    `tokens_seen_estimate` Nullable(Int64) COMMENT 'estimated tokens that came from the provider',
    `tokens_delivered_estimate` Nullable(Int64) COMMENT 'estimated tokens that reached the client',
    `gaps` Array(Tuple(content_index Int64, start_ms Float64, length_ms Float64, seq Nullable(Int64), tokens_estimate Nullable(Int64), stage String, ended_by String)) COMMENT 'gaps between content events above the threshold',
    `released` Array(Tuple(resource String, at_ms Float64)) COMMENT 'what was given back, and when',
    `elapsed_ms` Float64 COMMENT 'length of the attempt, from its dispatch',
    `stall_threshold_ms` Nullable(Float64) COMMENT 'threshold in force'
)
ENGINE = ${REPLICATED}ReplacingMergeTree(revision)
PARTITION BY toYYYYMM(start)
ORDER BY (tenant, generation_id, attempt)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One call to one provider: the unit of billing';

CREATE TABLE IF NOT EXISTS generations
(
    `partition` Int32 COMMENT 'partition of tokentrail.generations.v1',
    `offset` Int64 COMMENT 'offset there',
    `tenant` LowCardinality(String) COMMENT 'whose key made the request',
    `generation_id` UUID COMMENT 'the stream',
    `revision` Int64 COMMENT 'distinct records folded in, 0 without its start; the highest stands',
    `start` DateTime64(6, 'UTC') COMMENT 'the time in generation_id',
    `key_id` LowCardinality(String) COMMENT 'id of the API key',
    `status` LowCardinality(String) COMMENT 'complete, or gap where records are missing',
    `dialect` LowCardinality(String) COMMENT 'openai.chat, openai.responses or anthropic.messages',
    `edge_id` LowCardinality(String) COMMENT 'edge that owned it',
    `terminal` LowCardinality(String) COMMENT 'message_end or error',
    `terminal_seq` Int64 COMMENT 'seq of the terminal',
    `start_wall` Nullable(DateTime64(6, 'UTC')) COMMENT 'wall clock of its first record',
    `end_wall` Nullable(DateTime64(6, 'UTC')) COMMENT 'wall clock of its terminal',
    `request_id` Nullable(String) COMMENT 'the product''s request',
    `previous_generation_id` Nullable(String) COMMENT 'generation that it continues, repeats or replaces',
    `lineage_kind` LowCardinality(Nullable(String)) COMMENT 'how it comes from that: retry, continue, regenerate, …',
    `client_id` LowCardinality(Nullable(String)) COMMENT 'client as it named itself',
    `model` LowCardinality(Nullable(String)) COMMENT 'model that was asked for',
    `served_model` LowCardinality(Nullable(String)) COMMENT 'model that the provider says it used',
    `model_route` LowCardinality(Nullable(String)) COMMENT 'route that was taken',
    `priority` LowCardinality(Nullable(String)) COMMENT 'priority of the request',
    `risk_tier` LowCardinality(Nullable(String)) COMMENT 'risk tier of the request',
    `prompt_version` LowCardinality(Nullable(String)) COMMENT 'version of the prompt as the product names it',
    `prompt_hash` Nullable(String) COMMENT 'SHA-256 of the prompt',
    `upstream_id` Nullable(String) COMMENT 'the provider''s id of its answer',
    `client_streamed` Nullable(Bool) COMMENT 'whether the client asked for a stream',
    `finish_reason` LowCardinality(Nullable(String)) COMMENT 'our word for how it ended',
    `raw_finish_reason` LowCardinality(Nullable(String)) COMMENT 'the provider''s word',
    `choices` Array(Tuple(choice_index Int64, finish_reason String, raw_finish_reason Nullable(String))) COMMENT 'how each choice ended',
    `error_code` LowCardinality(Nullable(String)) COMMENT 'our code of its failure',
    `error_message` Nullable(String) COMMENT 'what people were told',
    `retryable` Nullable(Bool) COMMENT 'whether the same request may be sent again',
    `missing` Array(Tuple(first Int64, last Int64)) COMMENT 'ranges of seqs that are missing, ends included',
    `flags` Array(String) COMMENT 'gap, conflict, late, clock_skew',
    `trace_complete` Bool COMMENT 'no missing seq, no conflict, edge not lost, usage reported',
    `events` Int64 COMMENT 'distinct records folded in',
    `content_events` Int64 COMMENT 'records with content',
    `text_bytes` Int64 COMMENT 'UTF-8 bytes of text',
    `output_hash` Nullable(String) COMMENT 'SHA-256 over the content in seq order',
    `ttft_ms` Nullable(Float64) COMMENT 'accepted → first content of the committed attempt',
    `attempt_ttft_ms` Nullable(Float64) COMMENT 'dispatch → first content of the committed attempt',
    `ttft_emitted_ms` Nullable(Float64) COMMENT 'accepted → first content written to a socket',
    `generation_ms` Nullable(Float64) COMMENT 'first → last content',
    `active_generation_ms` Nullable(Float64) COMMENT 'generation_ms without stalls',
    `e2e_ms` Nullable(Float64) COMMENT 'accepted → last content',
    `stall_ms` Nullable(Float64) COMMENT 'length of all stalls',
    `stall_count` Nullable(Int64) COMMENT 'number of stalls',
    `stall_runs` Nullable(Int64) COMMENT 'runs of adjacent stalls',
    `longest_stall_ms` Nullable(Float64) COMMENT 'longest stall',
    `icl_p50_ms` Nullable(Float64) COMMENT 'gap between content events, median',
    `icl_p95_ms` Nullable(Float64) COMMENT 'gap between content events, 95th percentile',
    `icl_p99_ms` Nullable(Float64) COMMENT 'gap between content events, 99th percentile',
    `icl_max_ms` Nullable(Float64) COMMENT 'longest gap between content events',
    `tpot_ms` Nullable(Float64) COMMENT 'time per output token after the first',
    `tokens_per_second_active` Nullable(Float64) COMMENT 'output tokens per second of active generation',
    `tokens_per_second_wall` Nullable(Float64) COMMENT 'output tokens per second of generation',
    `tps_basis` LowCardinality(Nullable(String)) COMMENT 'which of the two holds: active or wall',
    `tps_null_reason` LowCardinality(Nullable(String)) COMMENT 'why there is none',
    `latency_gateway_ms` Nullable(Float64) COMMENT 'accepted → first dispatch, without queue and context',
    `latency_context_ms` Nullable(Float64) COMMENT 'building the context, as the client reports it',
    `latency_queue_ms` Nullable(Float64) COMMENT 'waiting for admission and in the provider''s queue',
    `latency_prefill_ms` Nullable(Float64) COMMENT 'prefill, as the provider reports it',
    `latency_first_event_ms` Nullable(Float64) COMMENT 'first content captured → written to a socket',
    `latency_decode_ms` Nullable(Float64) COMMENT 'first → last content',
    `latency_postprocess_ms` Nullable(Float64) COMMENT 'last content → terminal',
    `latency_ttft_ms` Nullable(Float64) COMMENT 'accepted → first content, as the edge saw it',
    `latency_ttft_emitted_ms` Nullable(Float64) COMMENT 'accepted → first content written, as the edge saw it',
    `latency_unattributed_ms` Nullable(Float64) COMMENT 'the rest, so that the parts add up',
    `latency_total_ms` Nullable(Float64) COMMENT 'accepted → terminal',
    `clock_skew_ms` Nullable(Float64) COMMENT 'wall clock against monotonic clock',
    `usage_input` Nullable(Int64) COMMENT 'uncached input tokens of the committed attempt; null is unmeasured',
    `usage_cache_read` Nullable(Int64) COMMENT 'input tokens read from a cache',
    `usage_cache_write` Nullable(Int64) COMMENT 'input tokens written to a cache',
    `usage_cache_write_1h` Nullable(Int64) COMMENT 'of usage_cache_write: kept for an hour',
    `usage_output` Nullable(Int64) COMMENT 'output tokens, reasoning included',
    `usage_reasoning` Nullable(Int64) COMMENT 'of usage_output: reasoning',
    `usage_input_audio` Nullable(Int64) COMMENT 'of usage_input: audio',
    `usage_output_audio` Nullable(Int64) COMMENT 'of usage_output: audio',
    `usage_server_tool_requests` Nullable(Int64) COMMENT 'calls of the provider''s own tools',
    `usage_source` LowCardinality(String) COMMENT 'reported, partial_reported, estimated or none',
    `usage_flags` Array(String) COMMENT 'what is odd about the usage',
    `usage_raw` Nullable(String) COMMENT 'the provider''s reports as received, a JSON array' CODEC(ZSTD(1)),
    `committed_attempt` Nullable(Int64) COMMENT 'attempt whose content the client saw',
    `attempts` Array(Tuple(attempt Int64, provider Nullable(String), model Nullable(String), reason Nullable(String), outcome Nullable(String), error_code Nullable(String), committed Bool, backoff_ms Nullable(Int64), input Nullable(Int64), output Nullable(Int64))) COMMENT 'its calls to providers, in order',
    `stalls` Array(Tuple(attempt Int64, seq Nullable(Int64), content_index Int64, start_ms Float64, length_ms Float64, tokens_estimate Nullable(Int64), stage String, ended_by String, counted Bool)) COMMENT 'gaps above the threshold; counted is false for a last gap that nothing closed',
    `lineage` Array(Tuple(kind String, from_id String, to_id String, changed_inputs Array(String))) COMMENT 'how attempts and generations come from one another',
    `diagnoses` Array(Tuple(name String, evidence String)) COMMENT 'rules that hold of it, with evidence as JSON',
    `cancel_mode` LowCardinality(Nullable(String)) COMMENT 'soft or hard, where it was cancelled',
    `cancel_reason` LowCardinality(Nullable(String)) COMMENT 'why it was cancelled',
    `cancel_source` LowCardinality(Nullable(String)) COMMENT 'which way the cancel came',
    `cancel_requested_by` Nullable(String) COMMENT 'who cancelled it',
    `cancel_stage` LowCardinality(Nullable(String)) COMMENT 'where it stood then',
    `tokens_generated` Nullable(Int64) COMMENT 'tokens that the provider made',
    `tokens_delivered` Nullable(Int64) COMMENT 'tokens that were given to the client',
    `delivered_seq` Nullable(Int64) COMMENT 'last seq written to a socket',
    `acked_seq` Nullable(Int64) COMMENT 'last seq that a client acknowledged',
    `last_detach_reason` LowCardinality(Nullable(String)) COMMENT 'why its last reader left',
    `pauses_ms` Nullable(Float64) COMMENT 'how long the edge paused reading'
)
ENGINE = ${REPLICATED}ReplacingMergeTree(revision)
PARTITION BY toYYYYMM(start)
ORDER BY (tenant, generation_id)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One client-visible stream, finalized';

CREATE TABLE IF NOT EXISTS ledger
(
    `partition` Int32 COMMENT 'partition of tokentrail.ledger.v1',
    `offset` Int64 COMMENT 'offset there',
    `precedence` Int64 COMMENT 'falls with the offset: of equal lines the first in log order stands',
    `tenant` LowCardinality(String) COMMENT 'who is billed',
    `generation_id` UUID COMMENT 'the stream',
    `attempt` Int32 COMMENT 'call to a provider, from 0',
    `side` LowCardinality(String) COMMENT 'provider_cost or customer_charge',
    `bucket` LowCardinality(String) COMMENT 'input, cache_read, cache_write, output, request, tool_call or none',
    `revision` Int64 COMMENT 'the highest stands; nothing is ever summed over revisions',
    `content_hash` String COMMENT 'SHA-256 over the other fields: two of one revision are a conflict',
    `start` DateTime64(6, 'UTC') COMMENT 'the time in generation_id',
    `started` DateTime64(6, 'UTC') COMMENT 'start instant of the attempt: price and period follow it',
    `key_id` LowCardinality(String) COMMENT 'id of the API key',
    `request_id` String COMMENT 'the product''s request',
    `provider` LowCardinality(String) COMMENT 'who was called',
    `model` LowCardinality(String) COMMENT 'model that is priced',
    `quantity` Nullable(Int64) COMMENT 'tokens or calls; null is unmeasured, never zero',
    `unit_price` Nullable(Decimal(38, 18)) COMMENT 'price of one; null is unpriced',
    `amount` Nullable(Decimal(38, 18)) COMMENT 'quantity × unit price, exact; null is unpriced or unmeasured',
    `currency` LowCardinality(String) COMMENT 'ISO 4217',
    `price_hash` Nullable(String) COMMENT 'entry of the price book that was used',
    `policy_hash` Nullable(String) COMMENT 'entry of the policy that was used',
    `usage_source` LowCardinality(String) COMMENT 'reported, partial_reported, estimated or none',
    `status` LowCardinality(String) COMMENT 'completed, cancelled, incomplete, unpriced or quarantined',
    `flags` Array(String) COMMENT 'what is odd about it'
)
ENGINE = ${REPLICATED}ReplacingMergeTree(precedence)
PARTITION BY toYYYYMM(start)
ORDER BY (tenant, generation_id, attempt, side, bucket, revision, content_hash)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One bucket of one attempt on one side of the books';

CREATE TABLE IF NOT EXISTS dead_letters
(
    `topic` LowCardinality(String) COMMENT 'topic of the record that could not be processed',
    `partition` Int32 COMMENT 'its partition',
    `offset` Int64 COMMENT 'its offset',
    `stage` LowCardinality(String) COMMENT 'who gave it up: fold, billing, sink.events, …',
    `reason` LowCardinality(String) COMMENT 'undecodable, tombstone, missing_field, bad_field, key_mismatch or schema_version',
    `detail` String COMMENT 'one line for an operator',
    `failed` DateTime64(6, 'UTC') COMMENT 'when it was given up',
    `key` String COMMENT 'its key, bytes',
    `value` String COMMENT 'its value, bytes' CODEC(ZSTD(1)),
    `letter_partition` Int32 COMMENT 'partition of the dead letter in tokentrail.dead-letters.v1',
    `letter_offset` Int64 COMMENT 'offset of the dead letter there'
)
ENGINE = ${REPLICATED}ReplacingMergeTree
PARTITION BY toYYYYMMDD(failed)
ORDER BY (topic, `partition`, `offset`, stage)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'Records that can never be processed';

CREATE TABLE IF NOT EXISTS prices
(
    `hash` String COMMENT 'SHA-256 of the entry: ledger.price_hash',
    `book` LowCardinality(String) COMMENT 'provider, or the tenant whose prices they are',
    `provider` LowCardinality(String) COMMENT 'whose model it is',
    `model` LowCardinality(String) COMMENT 'model that is priced',
    `valid_from` DateTime64(6, 'UTC') COMMENT 'first instant',
    `valid_until` Nullable(DateTime64(6, 'UTC')) COMMENT 'first instant no more; null: open',
    `currency` LowCardinality(String) COMMENT 'ISO 4217',
    `entry` String COMMENT 'the whole entry as canonical JSON' CODEC(ZSTD(1))
)
ENGINE = ${REPLICATED}ReplacingMergeTree
ORDER BY hash
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'Every price entry that was ever used: a ledger line resolves years later';
