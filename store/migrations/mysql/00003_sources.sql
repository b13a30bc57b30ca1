-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE sources (
  src         INT            NOT NULL PRIMARY KEY,
  topic       VARBINARY(249) NOT NULL,
  topic_id    BINARY(16)     NOT NULL COMMENT 'tells a topic from an earlier one of its name',
  part        INT            NOT NULL,
  next_offset BIGINT         NOT NULL COMMENT 'first offset that is not stored yet',
  UNIQUE KEY part (topic, topic_id, part)
) ENGINE=InnoDB COMMENT='notyet 3';
