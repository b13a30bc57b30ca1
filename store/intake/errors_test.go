package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/stretchr/testify/require"
)

type sqliteError int

func (e sqliteError) Error() string { return fmt.Sprint("sqlite ", int(e)) }
func (e sqliteError) Code() int     { return int(e) }

func TestBadRecord(t *testing.T) {
	number := func(n uint16) error { return fmt.Errorf("storing: %w", &mysql.MySQLError{Number: n}) }
	for _, err := range []error{number(1406), number(1264), number(1366), number(1153), number(3140), number(4025), sqliteError(18), sqliteError(275), fmt.Errorf("writing: %w", mysql.ErrPktTooLarge)} {
		require.True(t, BadRecord(err), "%v", err)
	}
	for _, err := range []error{nil, io.EOF, context.Canceled, handle.ErrFenced, ErrUncovered, errors.New("what nobody foresaw"), number(1213), number(1205), number(1062), number(1146), number(1290), number(3024), sqliteError(5), sqliteError(13), mysql.ErrInvalidConn} {
		require.False(t, BadRecord(err), "%v", err)
	}
}
