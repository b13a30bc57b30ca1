package sendlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
)

// occupant is a dispatcher's note in the directory of its log.
type occupant struct {
	// Start names the start of the process.
	Start string `json:"start"`
	// Before names the starts before it, the latest first.
	Before []string `json:"before,omitempty"`
	// Kernel names the start of the machine.
	Kernel string `json:"kernel"`
	// Lock names the file that the process has locked.
	Lock string `json:"lock"`
}

// mostBefore is how many starts are remembered, for what they left in the election for seconds.
const mostBefore = 16

// Occupy notes the start of the process with the log, and returns the earlier starts, the latest
// first, of which certainly no thread runs any more.
//
// Certain are the starts that had locked the file locked here, under the same kernel. A kernel
// takes a killed process's lock away once none of its threads can run, and a living process lets go
// after its dispatcher has ended. A copy of the directory has another file, and a moved disk
// another kernel: they prove nothing.
func (l *Log) Occupy(start string) (before []string, err error) {
	path := filepath.Join(l.dir, "occupant")
	was, err := readOccupant(path)
	if err != nil {
		return nil, fmt.Errorf("reading who had the send log: %w", err)
	}
	now := occupant{Start: start, Kernel: kernel()}
	if now.Lock, err = fileID(l.lock); err != nil {
		return nil, fmt.Errorf("identifying the send log's lock: %w", err)
	}
	if was.Start != "" && now.Kernel != "" && now.Lock != "" && was.Kernel == now.Kernel && was.Lock == now.Lock {
		now.Before = append([]string{was.Start}, was.Before...)
		now.Before = now.Before[:min(len(now.Before), mostBefore)]
	}
	return now.Before, wrap.Err(now.write(path), "noting who has the send log")
}

// write does not sync: a stop of the machine loses the note, and the next kernel distrusts it
// anyway.
func (o occupant) write(path string) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readOccupant takes an unreadable note for nobody's.
func readOccupant(path string) (o occupant, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	if json.Unmarshal(data, &o) != nil {
		return occupant{}, nil
	}
	return o, nil
}

// kernel names this start of the machine's kernel, or is "" on other systems than Linux.
func kernel() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// claim makes sure that the directory belongs to the installation. A log of an early version,
// without a note, is taken.
func (c Config) claim(dir string) error {
	if c.Installation == "" {
		return nil
	}
	path := filepath.Join(dir, "installation")
	noted, err := os.ReadFile(path)
	switch owner := strings.TrimSpace(string(noted)); {
	case errors.Is(err, fs.ErrNotExist), err == nil && owner == "":
		if c.Existing {
			return nil // a reader changes nothing
		}
		if err := os.WriteFile(path+".new", []byte(c.Installation+"\n"), 0o644); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	case err != nil:
		return err
	case owner != c.Installation:
		return fmt.Errorf("%w: %s says %s, and the database (mysql.dsn) %s", ErrOtherInstallation, path, owner, c.Installation)
	}
	return nil
}
