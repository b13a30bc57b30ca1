-- +goose NO TRANSACTION
-- +goose Up
-- Events that a transaction has decided and that may not be told yet.
CREATE TABLE outbox (
  src    INT        NOT NULL,
  seq    BIGINT     NOT NULL,
  events MEDIUMBLOB NOT NULL,
  PRIMARY KEY (src, seq)
) ENGINE=InnoDB COMMENT='notyet 4';
