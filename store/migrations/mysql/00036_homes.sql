-- +goose NO TRANSACTION
-- +goose Up
-- Which of several databases has a target: see internal/shardmap. Each database has a copy of all rules. Without rows, the first one
-- has all targets.
CREATE TABLE homes (
  n         INT            NOT NULL PRIMARY KEY COMMENT 'rules apply in this order, from 1 on',
  pattern   VARBINARY(255) NOT NULL,
  part      INT            NOT NULL COMMENT 'of parts, by hash; 0 of 0: all targets that match',
  parts     INT            NOT NULL,
  former    INT            NOT NULL COMMENT 'the database that the targets leave',
  shard     INT            NOT NULL COMMENT 'the one that has them then',
  token     BINARY(16)     NOT NULL COMMENT 'names the announcement',
  held      TINYINT        NOT NULL COMMENT '0: announced, and may be taken back',
  announced BIGINT         NOT NULL COMMENT 'Unix ms, by the clock of this database'
) ENGINE=InnoDB COMMENT='notyet 36';
