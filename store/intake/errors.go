package intake

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// aboutRecord are the errors of MySQL that the same row will always get.
var aboutRecord = []uint16{
	1048, // a column cannot be null
	1118, // the row is too large
	1153, // a packet is larger than max_allowed_packet
	1264, // a number is out of range
	1265, // data was truncated
	1292, // an incorrect value of its type
	1301, // a result is larger than max_allowed_packet
	1366, // a string is not of the column's character set
	1406, // data is too long for the column
	3140, // invalid JSON
	3819, // a check constraint is violated (MySQL)
	4025, // the same (MariaDB)
}

// sqliteAboutRecord, likewise: a value is too big, a check is violated, a type does not match.
var sqliteAboutRecord = []int{18, 275, 20}

// ErrLater: cancels of many cannot be decided yet, and do not wait in the table of waiting
// requests. Read them again in a moment, and store other records meanwhile.
var ErrLater = errors.New("cancels of many cannot be decided yet")

// BadRecord tells whether a write failed because of the record (true: it would fail again) or
// because of the world (false: keep the record and try again). An unknown error counts as the
// world's. If a batch fails because of a record, halve it until the record is alone.
func BadRecord(err error) bool {
	if errors.Is(err, errMerging) || errors.Is(err, errKnown) || errors.Is(err, errDamaged) {
		return true // the first two of a batch of several records; one alone may merge and read what it likes
	}
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return slices.Contains(aboutRecord, my.Number)
	}
	var lite interface{ Code() int }
	if errors.As(err, &lite) {
		return slices.Contains(sqliteAboutRecord, lite.Code())
	}
	return errors.Is(err, mysql.ErrPktTooLarge) || err != nil && strings.Contains(err.Error(), "string or blob too big")
}
