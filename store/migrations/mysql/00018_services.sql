-- +goose NO TRANSACTION
-- +goose Up
-- Which processes run, for operators. Nothing else goes by it. Programs of the version before neither write nor read it.
CREATE TABLE services (
  id      VARBINARY(255) NOT NULL PRIMARY KEY COMMENT 'names a start of a process',
  kind    VARBINARY(16)  NOT NULL COMMENT 'scanner, dispatcher, all, dev',
  owner   VARBINARY(255) NOT NULL COMMENT 'of a dispatcher: its name in slots.owner',
  version VARBINARY(64)  NOT NULL,
  http    VARBINARY(255) NOT NULL,
  started BIGINT         NOT NULL COMMENT 'Unix ms',
  seen    BIGINT         NOT NULL COMMENT 'Unix ms'
) ENGINE=InnoDB COMMENT='notyet 18';
