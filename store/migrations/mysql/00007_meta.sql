-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE meta (
  name  VARBINARY(64) NOT NULL PRIMARY KEY,
  value BIGINT        NOT NULL
) ENGINE=InnoDB COMMENT='notyet 7';
