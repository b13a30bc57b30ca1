-- +goose NO TRANSACTION
-- +goose Up
-- What each process did in each minute in which it did something, for operators. A row is written once, by its process, and deleted after
-- six hours. Programs of the version before neither write nor read it.
CREATE TABLE figures (
  minute  BIGINT          NOT NULL COMMENT 'minutes since 1970, by the database''s clock',
  process VARBINARY(255)  NOT NULL COMMENT 'services.id',
  data    VARBINARY(2048) NOT NULL COMMENT 'JSON with a version',
  PRIMARY KEY (minute, process)
) ENGINE=InnoDB COMMENT='notyet 20';
