-- What a cancelled generation would have done without a reader: whether an abort was a policy's or somebody's.
ALTER TABLE generations
    ADD COLUMN IF NOT EXISTS `cancel_policy` LowCardinality(Nullable(String)) COMMENT 'what it does without a reader: grace, continue or cancel';

CREATE OR REPLACE VIEW generations_final AS
SELECT * EXCEPT (`partition`, `offset`) FROM generations FINAL;
