-- +goose NO TRANSACTION
-- +goose Up
UPDATE slots CROSS JOIN (SELECT COUNT(*) AS n FROM slots) AS have SET base = have.n, spread = have.n, target = have.n WHERE base = 0;
