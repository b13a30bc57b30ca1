package config

import (
	"strings"

	"github.com/go-sql-driver/mysql"
)

func (l *loader) dsns(c *Config) {
	m := c.MySQL
	if m.PasswordFile != "" && (m.DSN == "" || strings.HasPrefix(m.DSN, "sqlite:")) {
		l.bad("mysql.password-file", "", "is set without a server in mysql.dsn", "write user@tcp(host:port)/database, or remove it")
		return
	}
	own := l.dsn("mysql.dsn", m.DSN, m.TLS.Enabled)
	if own != nil && own.Passwd != "" && m.PasswordFile != "" {
		l.bad("mysql.dsn", "", "has a password beside mysql.password-file", "remove one")
	}
	migrates := l.dsn("migrate.dsn", c.Migrate.DSN, m.TLS.Enabled)
	if own != nil && migrates != nil && own.DBName != migrates.DBName {
		l.bad("migrate.dsn", "", "names another database than mysql.dsn", "name the same")
	}
}

// dsn returns nil unless the text is the DSN of a server.
func (l *loader) dsn(key, dsn string, secured bool) *mysql.Config {
	const fix = "write user:password@tcp(host:port)/database"
	if path, sqlite := strings.CutPrefix(dsn, "sqlite:"); dsn == "" || sqlite && path != "" {
		if sqlite && secured {
			l.bad("mysql.tls.enabled", "true", "does nothing for a database in a file", "remove it")
		}
		return nil
	}
	parsed, err := mysql.ParseDSN(dsn)
	switch { // the parser's errors repeat parts of the DSN, and these may contain the password
	case err != nil && strings.Contains(dsn, "://"):
		l.bad(key, "", "is a URL", fix)
	case err != nil:
		l.bad(key, "", "cannot be read", fix+"; a parameter's value is percent-encoded")
	case parsed.Net != "tcp" && parsed.Net != "unix": // without an @, user and password are parsed as something else
		l.bad(key, "", "has a protocol that is neither tcp nor unix", fix)
	case parsed.DBName == "":
		l.bad(key, "", "names no database", fix)
	default:
		l.dsnParameters(key, parsed, secured)
		return parsed
	}
	return nil
}

// dsnParameters refuses parameters that give the password, the data or this machine's files to an
// unverified server. The driver's parsed values count, because a parameter can be written in
// several ways. The DSN cannot name a file of the operator's own authority. Operators with such a
// file would therefore turn verification off.
func (l *loader) dsnParameters(key string, parsed *mysql.Config, secured bool) {
	refuse := func(problem, fix string) { l.bad(key, "", problem, fix) }
	switch {
	case parsed.TLS != nil && parsed.TLS.InsecureSkipVerify:
		refuse("asks for TLS without verifying the server (tls=preferred or tls=skip-verify)",
			"remove tls from it and set mysql.tls.enabled, and mysql.tls.ca for an authority of your own")
	case parsed.AllowFallbackToPlaintext:
		refuse("lets the server turn TLS off (allowFallbackToPlaintext)", "remove allowFallbackToPlaintext from it")
	case secured && parsed.TLSConfig != "":
		refuse("has a tls parameter beside mysql.tls", "remove it from the DSN")
	case parsed.AllowCleartextPasswords && parsed.TLS == nil && !secured && parsed.Net == "tcp":
		refuse("lets the server ask for the password in the clear (allowCleartextPasswords) without TLS",
			"set mysql.tls.enabled, or remove allowCleartextPasswords from it")
	case parsed.AllowOldPasswords:
		refuse("lets the server ask for a hash that gives the password away (allowOldPasswords)",
			"remove allowOldPasswords from it, and give the user a password of a current kind")
	case parsed.AllowAllFiles:
		refuse("lets the server read every file that notyet may read (allowAllFiles)", "remove allowAllFiles from it")
	}
}
