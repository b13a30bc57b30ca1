package sendlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

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
