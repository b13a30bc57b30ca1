-- +goose NO TRANSACTION
-- +goose Up
-- pos <= done: settled. done < pos <= claimed: the owner's. pos > claimed: pending.
CREATE TABLE slots (
  slot    INT            NOT NULL PRIMARY KEY,
  epoch   BIGINT         NOT NULL,
  owner   VARBINARY(255) NOT NULL COMMENT 'empty: free to take',
  claimed BIGINT         NOT NULL,
  done    BIGINT         NOT NULL
) ENGINE=InnoDB COMMENT='notyet 2';
