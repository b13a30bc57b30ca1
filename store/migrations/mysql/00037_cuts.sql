-- +goose NO TRANSACTION
-- +goose Up
-- From which offset of a partition on a rule holds. Without a row: from its begin.
CREATE TABLE cuts (
  n        INT            NOT NULL COMMENT 'of the rule',
  topic    VARBINARY(249) NOT NULL,
  topic_id BINARY(16)     NOT NULL,
  part     INT            NOT NULL,
  at       BIGINT         NOT NULL,
  PRIMARY KEY (n, topic, topic_id, part)
) ENGINE=InnoDB COMMENT='notyet 37';
