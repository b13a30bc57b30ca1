-- +goose NO TRANSACTION
-- +goose Up
-- Requests for one identity are decided in the order in which they came. seq is not that order: it begins with the source.
-- Programs of the version before name the columns that they write and read, so they work with these as well.
ALTER TABLE waiting
  ADD COLUMN arrived BIGINT NOT NULL AUTO_INCREMENT,
  ADD COLUMN size INT UNSIGNED GENERATED ALWAYS AS (OCTET_LENGTH(request)) STORED,
  ADD UNIQUE KEY arrived (arrived),
  ADD KEY queue (ident, report, arrived, size),
  DROP KEY ident;
