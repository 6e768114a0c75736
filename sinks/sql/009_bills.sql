-- What was billed. A month that was exported is closed: its bill is read from here ever after, and what the ledger says
-- otherwise by then stands on a later bill, as an adjustment.

ALTER TABLE ledger
    ADD COLUMN IF NOT EXISTS `record_hash` String COMMENT 'SHA-256 over all lines of this attempt, side and revision together';

-- A line whose closing stands in no row of closed_periods was never billed: whoever closed died before the end.
CREATE TABLE IF NOT EXISTS billed_lines
(
    `tenant` LowCardinality(String) COMMENT 'who was billed',
    `side` LowCardinality(String) COMMENT 'provider_cost or customer_charge',
    `closing` String COMMENT 'closed_periods.closing',
    `number` UInt64 COMMENT 'place on the bill, from 0',
    `billed_in` LowCardinality(String) COMMENT 'month whose bill it stands on',
    `kind` LowCardinality(String) COMMENT 'line, adjustment (of a month that was closed before), or quarantined: set aside, on no bill',
    `period` LowCardinality(String) COMMENT 'month in which the attempt started, in the tenant''s zone',
    `sign` Int8 COMMENT '1, or -1 for an adjustment that takes back what was billed before',
    `generation_id` UUID COMMENT 'the stream',
    `attempt` Int32 COMMENT 'call to a provider, from 0',
    `bucket` LowCardinality(String) COMMENT 'as in ledger',
    `revision` Int64 COMMENT 'as in ledger',
    `started` DateTime64(6, 'UTC') COMMENT 'start instant of the attempt',
    `key_id` LowCardinality(String) COMMENT 'id of the API key',
    `request_id` String COMMENT 'the product''s request',
    `provider` LowCardinality(String) COMMENT 'who was called',
    `model` LowCardinality(String) COMMENT 'model that is priced',
    `quantity` Nullable(Int64) COMMENT 'tokens or calls, negative where taken back; null is unmeasured, never zero',
    `unit_price` Nullable(Decimal(38, 18)) COMMENT 'price of one; null is unpriced',
    `amount` Nullable(Decimal(38, 18)) COMMENT 'negative where taken back; null is unpriced or unmeasured',
    `currency` LowCardinality(String) COMMENT 'ISO 4217',
    `price_hash` Nullable(String) COMMENT 'entry of the price book that was used',
    `policy_hash` Nullable(String) COMMENT 'entry of the policy that was used',
    `usage_source` LowCardinality(String) COMMENT 'reported, partial_reported, estimated or none',
    `status` LowCardinality(String) COMMENT 'completed, cancelled, incomplete, unpriced or quarantined',
    `flags` Array(String) COMMENT 'what is odd about it',
    `content_hash` String COMMENT 'the ledger line that was billed',
    `conflicts` UInt64 COMMENT 'other contents of the same line that were set aside by then',
    `stands_quantity` Nullable(Int64) COMMENT 'beside what is quarantined: what stands in its place',
    `stands_amount` Nullable(Decimal(38, 18)) COMMENT 'beside what is quarantined: what stands in its place'
)
ENGINE = ${REPLICATED}ReplacingMergeTree
PARTITION BY billed_in
ORDER BY (tenant, side, closing, number)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'Every line of every bill that was closed, as it was billed';

-- The closings of a tenant and side are a chain: the insert token names the link, so of two that close at once one is told
-- by what it reads back that it did not, and counts again from what the other has billed.
CREATE TABLE IF NOT EXISTS closed_periods
(
    `tenant` LowCardinality(String) COMMENT 'who was billed',
    `side` LowCardinality(String) COMMENT 'provider_cost or customer_charge',
    `number` UInt32 COMMENT 'place in the chain of this tenant and side, from 1',
    `closing` String COMMENT 'names its lines in billed_lines',
    `period` LowCardinality(String) COMMENT 'month that was closed',
    `zone` LowCardinality(String) COMMENT 'the tenant''s time zone: where the month begins and ends',
    `closed` DateTime64(6, 'UTC') COMMENT 'when',
    `lines` UInt64 COMMENT 'lines of the bill, those that are quarantined not counted',
    `ledger_position` String COMMENT 'last offset of each partition of tokentrail.ledger.v1 that was looked at, JSON'
)
ENGINE = ${REPLICATED}ReplacingMergeTree
ORDER BY (tenant, side, number, closing)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'The months that were closed, and the bills that hold for them';

-- As before, and of two records that contradict one another the lines of one only: the one that the log has first.
CREATE OR REPLACE VIEW ledger_current AS
SELECT * EXCEPT (place, latest, first_record, `partition`, `offset`, precedence)
FROM
(
    SELECT
        *,
        max(revision) OVER (PARTITION BY tenant, generation_id, attempt, side) AS latest,
        argMin(record_hash, `offset`) OVER (PARTITION BY tenant, generation_id, attempt, side, revision) AS first_record,
        row_number() OVER (PARTITION BY tenant, generation_id, attempt, side, bucket, revision ORDER BY `offset` ASC) AS place,
        count() OVER (PARTITION BY tenant, generation_id, attempt, side, bucket, revision) - 1 AS conflicts
    FROM ledger FINAL
)
WHERE place = 1 AND revision = latest AND record_hash = first_record;

-- What the ledger holds twice with different contents, in one revision: on no bill, beside what stands.
CREATE OR REPLACE VIEW ledger_set_aside AS
SELECT * EXCEPT (place, latest, first_record, stands, `partition`, `offset`, precedence)
FROM
(
    SELECT
        *,
        place = 1 AND record_hash = first_record AS stands,
        anyIf(quantity, stands) OVER (PARTITION BY tenant, generation_id, attempt, side, bucket, revision) AS stands_quantity,
        anyIf(amount, stands) OVER (PARTITION BY tenant, generation_id, attempt, side, bucket, revision) AS stands_amount
    FROM
    (
        SELECT
            *,
            max(revision) OVER (PARTITION BY tenant, generation_id, attempt, side) AS latest,
            argMin(record_hash, `offset`) OVER (PARTITION BY tenant, generation_id, attempt, side, revision) AS first_record,
            row_number() OVER (PARTITION BY tenant, generation_id, attempt, side, bucket, revision ORDER BY `offset` ASC) AS place
        FROM ledger FINAL
    )
)
WHERE revision = latest AND NOT stands;
