package intake

import (
	"context"
	"fmt"
)

// maxStands is the most that is kept of why a partition stands.
const maxStands = 1024

// Stands notes, for operators, why a scanner cannot go on with a source at an offset. The note no
// longer counts once the source moves.
func (in Intake) Stands(ctx context.Context, source int, at int64, why string) error {
	if len(why) > maxStands {
		why = why[:maxStands]
	}
	_, err := in.h.Exec(ctx, "UPDATE sources SET stands_at = ?, stands = ? WHERE src = ? AND next_offset = ?", at, []byte(why), source, at)
	if err != nil {
		return fmt.Errorf("noting why source %d stands: %w", source, err)
	}
	return nil
}
