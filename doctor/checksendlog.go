package doctor

import (
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/sendlog"
)

// slowSync is how long a disk may take to make a batch durable. Each delivery waits for two syncs.
const slowSync = 50 * time.Millisecond

func sendLogDisk(c Config, d *sendlog.Examined, where string) []Finding {
	if !d.Exists {
		return found(where, Note, "does not exist: no dispatcher has run here", "")
	}
	use := "no process has it open"
	if d.InUse {
		use = "a dispatcher has it open"
	}
	const gib = 1 << 30
	var out []Finding
	if d.Sync > slowSync {
		out = append(out, Finding{Where: where, Level: Warning, Found: fmt.Sprintf("its disk takes %s to make 4 KiB durable, and each delivery waits for that twice", d.Sync.Round(time.Millisecond)), Fix: "put sendlog.dir on a local disk"})
	}
	if d.Free < min(int64(c.Settings.SendLog.MaxBytes), gib) {
		out = append(out, Finding{Where: where, Level: Warning, Found: fmt.Sprintf("its disk has %d MiB left: a full one stops deliveries", d.Free>>20), Fix: "free some space, or put sendlog.dir on another disk"})
	}
	if len(out) == 0 {
		return found(where, OK, fmt.Sprintf("%s; its disk syncs in %s and has %d GiB left", use, d.Sync.Round(100*time.Microsecond), d.Free/gib), "")
	}
	return out
}
