"""What the books are asked in SQL: texts, and the columns that they give.

The ledger's current lines and those set aside are asked up to a position, so that all answers about one bill are of one state;
otherwise they are the views ``ledger_current`` and ``ledger_set_aside`` (a test compares them). What is wide is touched only
where ledger and bills differ: they are compared by the key and the hash of their lines.

Before: ``books`` asks. After: ClickHouse.
"""

FIELDS = (
    "generation_id",
    "attempt",
    "bucket",
    "revision",
    "started",
    "key_id",
    "request_id",
    "provider",
    "model",
    "quantity",
    "unit_price",
    "amount",
    "currency",
    "price_hash",
    "policy_hash",
    "usage_source",
    "status",
    "flags",
    "content_hash",
)
"""What a bill keeps of a ledger line."""
BESIDE = ("conflicts", "stands_quantity", "stands_amount")

_LARGE = (
    "SETTINGS max_bytes_before_external_group_by = 1000000000, max_bytes_before_external_sort = 1000000000"
)
"""A tenant's whole ledger is sorted on disk rather than refused for its size."""
_OF = "PARTITION BY generation_id, attempt"
_HERE = f"""
SELECT
    *,
    place = 1 AND record_hash = first_record AS stands,
    anyIf(quantity, stands) OVER ({_OF}, bucket, revision) AS stands_quantity,
    anyIf(amount, stands) OVER ({_OF}, bucket, revision) AS stands_amount
FROM
(
    SELECT
        *,
        max(revision) OVER ({_OF}) AS latest,
        argMin(record_hash, `offset`) OVER ({_OF}, revision) AS first_record,
        row_number() OVER ({_OF}, bucket, revision ORDER BY `offset` ASC) AS place,
        count() OVER ({_OF}, bucket, revision) - 1 AS conflicts
    FROM ledger FINAL
    WHERE tenant = {{tenant:String}} AND side = {{side:String}}
        AND `offset` <= arrayElement({{offsets:Array(Int64)}}, indexOf({{partitions:Array(Int32)}}, `partition`))
        AND has({{partitions:Array(Int32)}}, `partition`)
)
WHERE revision = latest AND started < fromUnixTimestamp64Micro({{until_us:Int64}}, 'UTC')
"""  # noqa: S608 - our own names; the view ledger_current up to a position, and with what is set aside
_BILLED = """
SELECT * FROM billed_lines FINAL
WHERE tenant = {tenant:String} AND side = {side:String} AND has({closings:Array(String)}, closing)
    AND started < fromUnixTimestamp64Micro({until_us:Int64}, 'UTC')
"""
_KEY = "generation_id, attempt, bucket, content_hash"
_COLUMNS = ", ".join(FIELDS)
_NAMED = f"""
SELECT kind = 'quarantined' AS aside, {_KEY}
FROM ({_BILLED})
GROUP BY aside, {_KEY}
HAVING sum(sign) > 0
"""  # noqa: S608 - what stands on the bills that were closed
_TAKEN_BACK = f"""
SELECT 0 AS aside, -1 AS owed, {_COLUMNS}, {", ".join(BESIDE)}
FROM ({_BILLED})
WHERE kind != 'quarantined' AND sign > 0
    AND ({_KEY}) IN (SELECT {_KEY} FROM ({_NAMED}) WHERE NOT aside)
    AND ({_KEY}) NOT IN (SELECT {_KEY} FROM ({_HERE}) WHERE stands)
LIMIT 1 BY {_KEY}
"""  # noqa: S608
ENTRIES = f"""
SELECT *
FROM
(
    SELECT NOT stands AS aside, 1 AS owed, {_COLUMNS}, toUInt64(conflicts) AS conflicts, stands_quantity, stands_amount
    FROM ({_HERE})
    WHERE (NOT stands, {_KEY}) NOT IN ({_NAMED})
    UNION ALL
    SELECT * FROM ({_TAKEN_BACK})
)
ORDER BY toString(generation_id), attempt, bucket, aside, owed, content_hash
{_LARGE}
"""  # noqa: S608
OWED = f"""
SELECT currency, sum(total) AS total
FROM
(
    SELECT currency, ifNull(sum(amount), 0) AS total FROM ({_HERE}) WHERE stands GROUP BY currency
    UNION ALL
    SELECT currency, -ifNull(sum(amount), 0) AS total FROM ({_BILLED}) WHERE kind != 'quarantined' GROUP BY currency
)
GROUP BY currency
{_LARGE}
"""  # noqa: S608
POSITION = """
SELECT `partition` AS log_partition, max(`offset`) AS last_offset FROM ledger FINAL
WHERE tenant = {tenant:String} AND side = {side:String} GROUP BY log_partition ORDER BY log_partition
"""
CLOSINGS = """
SELECT number, closing, period, zone, closed, lines, ledger_position FROM closed_periods FINAL
WHERE tenant = {tenant:String} AND side = {side:String} ORDER BY number, closed, closing
LIMIT 1 BY number
"""
LINES = f"""
SELECT kind, period, sign, {_COLUMNS}, {", ".join(BESIDE)} FROM billed_lines FINAL
WHERE tenant = {{tenant:String}} AND side = {{side:String}} AND closing = {{closing:String}} ORDER BY number
"""  # noqa: S608
SUMS = """
SELECT currency, count() AS lines, ifNull(sum(amount), 0) AS total FROM billed_lines FINAL
WHERE tenant = {tenant:String} AND side = {side:String} AND closing = {closing:String} AND kind != 'quarantined'
GROUP BY currency
"""
UNREADABLE = """
SELECT concat(topic, '/', toString(`partition`), '/', toString(`offset`)) AS place, reason FROM dead_letters FINAL
WHERE has({topics:Array(String)}, topic) AND failed >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND `key` NOT IN (SELECT toString(generation_id) FROM generations WHERE tenant != {tenant:String})
ORDER BY topic, `partition`, `offset`
LIMIT {most:Int32}
"""
