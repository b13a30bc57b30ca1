-- +goose NO TRANSACTION
-- +goose Up
-- Tasks, and the requests that wait for them, on their way to another database. They are in no line of this one.
CREATE TABLE leaving (
  token BINARY(16) NOT NULL COMMENT 'of the rule, see homes',
  num   BIGINT     NOT NULL COMMENT 'in this order, from 1 on',
  at    BIGINT     NOT NULL COMMENT 'when they left, Unix ms',
  data  LONGBLOB   NOT NULL,
  PRIMARY KEY (token, num)
) ENGINE=InnoDB COMMENT='notyet 41';
