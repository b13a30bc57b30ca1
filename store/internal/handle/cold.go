package handle

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/notyet/notyet/store/internal/tables"
)

// Cold begins a statement of gorm about a table with few writers. Its model is a struct with the
// table's columns. Each statement needs its own call: gorm adds to begun ones.
//
// The server ends a read with ctx; see tables.Timely for the error.
func (h *Handle) Cold(ctx context.Context, table string) *gorm.DB {
	return cold(ctx, h.Gorm, pool{h.DB, h}, table)
}

// ColdIn is Cold in a transaction.
func (h *Handle) ColdIn(ctx context.Context, tx *sql.Tx, table string) *gorm.DB {
	return cold(ctx, h.Gorm, tx, table)
}

func cold(ctx context.Context, of *gorm.DB, q gorm.ConnPool, table string) *gorm.DB {
	db := of.WithContext(ctx)
	db.Statement.ConnPool = q
	return db.Table(table)
}

// Retire deletes a cold table's rows with the lowest values of a column, below a value, at most so
// many. more: there may be others.
func (h *Handle) Retire(ctx context.Context, table, column string, below int64, most int) (n int, more bool, err error) {
	var ids []int64
	err = h.Cold(ctx, table).Where(column+" < ?", below).Order(column).Limit(most).Pluck("id", &ids).Error
	if err == nil && len(ids) > 0 {
		err = h.Cold(ctx, table).Where("id IN ?", ids).Delete(nil).Error
	}
	return len(ids), len(ids) == most, tables.Timely(err)
}

// pool is the database as gorm sees it outside transactions.
type pool struct {
	*sql.DB
	h *Handle
}

func (p pool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.h.Exec(ctx, query, args...)
}

func (p pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return p.DB.QueryContext(ctx, tables.Limited(ctx, query), args...)
}

func init() { schema.RegisterSerializer("text", text{}) }

// text stores models' fields marked `serializer:text` as bytes, because SQLite compares bytes with
// bytes alone, and cut to the column's width, because nobody has checked them before.
type text struct{}

func (text) Value(_ context.Context, f *schema.Field, _ reflect.Value, value any) (any, error) {
	return tables.CutText(value.(string), f.Size), nil
}

func (text) Scan(ctx context.Context, f *schema.Field, model reflect.Value, value any) error {
	switch value := value.(type) {
	case []byte:
		f.ReflectValueOf(ctx, model).SetString(string(value))
	case string:
		f.ReflectValueOf(ctx, model).SetString(value)
	default:
		return fmt.Errorf("reading the column %s: %T is no text", f.DBName, value)
	}
	return nil
}
