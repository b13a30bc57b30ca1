-- +goose NO TRANSACTION
-- +goose Up
-- Who takes part in the election, where dispatchers elect through the database (election.kind). Programs of the version before neither
-- write nor read it.
CREATE TABLE members (
  seq      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'the lowest one leads',
  instance VARBINARY(64)   NOT NULL COMMENT 'names a start of a process',
  id       VARBINARY(255)  NOT NULL COMMENT 'as in slots.owner',
  beat     BIGINT          NOT NULL COMMENT 'changes while the process lives',
  data     VARBINARY(4096) NOT NULL COMMENT 'JSON: what the process says of itself',
  UNIQUE KEY instance (instance)
) ENGINE=InnoDB COMMENT='notyet 24';
