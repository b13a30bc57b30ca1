-- +goose NO TRANSACTION
-- +goose Up
-- Requests about a task that is being delivered: they take effect when its outcome is known.
CREATE TABLE waiting (
  seq     BIGINT     NOT NULL PRIMARY KEY,
  ident   BINARY(16) NOT NULL,
  report  TINYINT    NOT NULL COMMENT '1: a report, 0: a request',
  request MEDIUMBLOB NOT NULL,
  KEY ident (ident)
) ENGINE=InnoDB COMMENT='notyet 5';
