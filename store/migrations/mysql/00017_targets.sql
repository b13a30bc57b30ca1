-- +goose NO TRANSACTION
-- +goose Up
-- What an operator has said about a target: one row each, and none for those of which nothing was said.
CREATE TABLE targets (
  topic         VARBINARY(255) NOT NULL PRIMARY KEY,
  paused        TINYINT        NOT NULL,
  rate          DOUBLE         NOT NULL COMMENT 'tasks a second, of all dispatchers together; 0: no limit',
  max_in_flight INT            NOT NULL COMMENT '0: no limit',
  changed       BIGINT         NOT NULL COMMENT 'Unix ms'
) ENGINE=InnoDB COMMENT='notyet 17';
