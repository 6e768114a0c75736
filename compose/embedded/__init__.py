"""Real services without an installation: Apache Kafka (`kafka`) and ClickHouse (`clickhouse`) as child processes."""
