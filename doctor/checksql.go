package doctor

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/store"
)

func databaseVersion(_ Config, d *database, where string) []Finding {
	if d.Embedded {
		return found(where, Note, "is a file of one process (SQLite)", "")
	}
	if oldDatabase(d.Version) {
		return found(where, Warning, "is "+d.Version+", which nobody maintains or tests with notyet", "upgrade to MySQL 8.0 or MariaDB 10.6, or later")
	}
	return found(where, OK, "is "+d.Version, "")
}

// oldDatabase reports whether a version is below MySQL 8.0 or MariaDB 10.6.
func oldDatabase(version string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 {
		return false
	}
	if strings.Contains(strings.ToLower(version), "mariadb") {
		return major < 10 || major == 10 && minor < 6
	}
	return major < 8
}

func schema(_ Config, d *database, where string) []Finding {
	switch {
	case d.migrated != nil && d.Schema == 0:
		return found(where, Failure, "has no tables of notyet", "run `notyet migrate`")
	case errors.Is(d.migrated, store.ErrRequired):
		return found(where, Failure, oneLine(d.migrated), "upgrade this program")
	case d.migrated != nil:
		return found(where, Failure, fmt.Sprintf("its tables have version %d, and this program needs %d (%s)", d.Schema, d.Wanted, oneLine(d.migrated)), "run `notyet migrate`")
	case d.Schema > d.Wanted:
		return found(where, Note, fmt.Sprintf("its tables have version %d, and this program knows %d", d.Schema, d.Wanted), "upgrade this program to the version that migrated the database")
	}
	return found(where, OK, fmt.Sprintf("its tables have version %d", d.Schema), "")
}

func rowLocks(_ Config, d *database, where string) []Finding {
	switch {
	case d.Embedded || d.migrated != nil:
		return nil
	case d.locks != nil:
		return found(where, Failure, oneLine(d.locks), "use one MySQL or MariaDB server with InnoDB, without a proxy that spreads statements")
	}
	return found(where, OK, "a lock on a row holds", "")
}

// durable looks for settings that let a database forget commits.
func durable(_ Config, d *database, where string) []Finding {
	if d.Embedded {
		return nil
	}
	var out []Finding
	warn := func(found, fix string) {
		out = append(out, Finding{Where: where, Level: Warning, Found: found, Fix: fix})
	}
	v := d.Variables
	if n, set := v["innodb_flush_log_at_trx_commit"]; set && n != "1" {
		warn("innodb_flush_log_at_trx_commit is "+n+": a crash forgets the last second of commits, among them cancels that were answered", "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in the server's file")
	}
	if n := v["sync_binlog"]; v["log_bin"] == "on" && n != "1" {
		warn("sync_binlog is "+n+" with log_bin on: after a crash, replicas and backups lack commits, or have other ones", "SET GLOBAL sync_binlog = 1, and the same in the server's file")
	}
	if n := v["innodb_doublewrite"]; n == "off" || n == "0" || n == "detect_only" {
		warn("innodb_doublewrite is "+n+": a loss of power may leave pages half written", "set innodb_doublewrite = ON in the server's file, unless the file system writes pages as a whole")
	}
	if n := v["innodb_flush_method"]; n == "nosync" || n == "littlesync" {
		warn("innodb_flush_method is "+n+": nothing that is committed is forced to the disk", "remove innodb_flush_method from the server's file")
	}
	if len(out) == 0 {
		return found(where, OK, "what is committed outlives a crash", "")
	}
	return out
}

// writes looks for settings that refuse writes.
func writes(_ Config, d *database, where string) []Finding {
	v := d.Variables
	switch {
	case d.Embedded:
		return nil
	case v["read_only"] == "on" || v["read_only"] == "1" || v["super_read_only"] == "on":
		return found(where, Failure, "is read-only: it is a replica, or a primary that was taken out of service", "point mysql.dsn at the primary, or SET GLOBAL read_only = OFF where this is the primary")
	case v["log_bin"] == "on" && v["binlog_format"] == "statement":
		return found(where, Failure, "binlog_format is STATEMENT: it refuses every write, because notyet's transactions are READ COMMITTED", "SET GLOBAL binlog_format = ROW (or MIXED), and the same in the server's file")
	case v["log_bin"] == "on" && v["rpl_semi_sync_master_enabled"] != "on" && v["rpl_semi_sync_source_enabled"] != "on":
		return found(where, Note, "takes writes; replicas, if it has some, may be behind: a failover to one forgets the last commits", "where a failover is automatic, use semi-synchronous replication with AFTER_SYNC")
	}
	return found(where, OK, "takes writes", "")
}

// sessions looks for settings that cut or end the statements of other programs, or notyet's own.
// Others that change answers are set in each of notyet's sessions.
func sessions(_ Config, d *database, where string) []Finding {
	if d.Embedded {
		return nil
	}
	if n, limit := d.Variables["sql_select_limit"], uint64(math.MaxUint64); n != "" && n != strconv.FormatUint(limit, 10) {
		return found(where, Warning, "sql_select_limit is "+n+": notyet's own sessions have no limit, but a backup by mysqldump lacks the rows beyond it", "SET GLOBAL sql_select_limit = DEFAULT, and remove it from the server's file")
	}
	for _, name := range []string{"max_statement_time", "max_execution_time"} {
		if n, err := strconv.ParseFloat(d.Variables[name], 64); err == nil && n > 0 {
			return found(where, Warning, name+" is "+d.Variables[name]+": the server ends slow statements, and those of sweeps, lists and retention are slow behind an outage", "SET GLOBAL "+name+" = 0, or for other users only")
		}
	}
	return found(where, OK, "no setting cuts or ends the statements of a session", "")
}

// leastPacket is the need of notyet's largest statement: MariaDB's default. MySQL 5.7 had less.
const leastPacket = 16 << 20

func packets(_ Config, d *database, where string) []Finding {
	n, err := strconv.ParseInt(d.Variables["max_allowed_packet"], 10, 64)
	switch {
	case err != nil:
		return nil
	case n < leastPacket:
		return found(where, Warning, fmt.Sprintf("max_allowed_packet is %d: large requests become dead letters", n), fmt.Sprintf("SET GLOBAL max_allowed_packet = %d or more, and the same in the server's file", leastPacket))
	}
	return found(where, OK, fmt.Sprintf("max_allowed_packet is %d", n), "")
}

// spareConns are connections for others than notyet: commands, backups, people.
const spareConns = 10

func connections(c Config, d *database, where string) []Finding {
	most, setting := 0, ""
	for _, name := range []string{"max_connections", "max_user_connections"} {
		if n, err := strconv.Atoi(d.Variables[name]); err == nil && n > 0 && (setting == "" || n < most) {
			most, setting = n, name
		}
	}
	if setting == "" {
		return nil
	}
	processes := max(len(d.services), 1)
	need := processes*c.Settings.MySQL.MaxConns + spareConns
	if c.Settings.Election.Kind == config.KindMySQL { // each dispatcher elects over a connection of its own
		dispatchers := 0
		for _, s := range d.services {
			if s.Member != "" {
				dispatchers++
			}
		}
		need += max(dispatchers, 1)
	}
	if most < need {
		return found(where, Warning, fmt.Sprintf("%s is %d, and %d services with mysql.max-conns %d may need %d", setting, most, processes, c.Settings.MySQL.MaxConns, need), "raise "+setting+", or lower mysql.max-conns")
	}
	return found(where, OK, fmt.Sprintf("%s is %d, and %d services may need %d", setting, most, processes, need), "")
}

func databaseRights(cfg Config, d *database, where string) []Finding {
	if d.Embedded {
		return nil
	}
	var work, migrate []string
	for _, right := range d.Missing {
		if slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, right) {
			work = append(work, right)
		} else {
			migrate = append(migrate, right)
		}
	}
	switch {
	case len(work) > 0:
		return found(where, Failure, "the user of mysql.dsn lacks "+strings.Join(work, ", ")+" on the database", "GRANT SELECT, INSERT, UPDATE, DELETE on the database to that user")
	case len(migrate) > 0 && cfg.Settings.Migrate.DSN == "":
		return found(where, Note, "the user of mysql.dsn lacks "+strings.Join(migrate, ", ")+" on the database, so it cannot run `notyet migrate`", "set migrate.dsn to the DSN of a user who has them")
	}
	return found(where, OK, "the user of mysql.dsn has the rights that notyet needs", "")
}

func databaseClock(_ Config, d *database, where string) []Finding {
	if d.Embedded {
		return nil
	}
	return clock(where, d.Ahead, d.Within)
}

// services looks for live services, but not at a service's own start: others may start later.
func services(c Config, d *database, where string) []Finding {
	if c.Running || d.migrated != nil {
		return nil
	}
	var out []Finding
	scanners, dispatchers := 0, 0
	versions := map[string]int{}
	for _, s := range d.services {
		versions[s.Version]++
		if s.Kind != "dispatcher" {
			scanners++
		}
		if s.Member != "" {
			dispatchers++
		}
	}
	if scanners == 0 {
		out = append(out, Finding{Where: where, Level: Warning, Found: "no scanner is alive: requests wait in Kafka", Fix: "start `notyet scanner` or `notyet all`"})
	}
	if dispatchers == 0 {
		out = append(out, Finding{Where: where, Level: Warning, Found: "no dispatcher is alive: nothing is delivered", Fix: "start `notyet dispatcher` or `notyet all`"})
	}
	if len(versions) > 1 || len(versions) == 1 && versions[c.Version] == 0 {
		var all []string
		for v, n := range versions {
			all = append(all, fmt.Sprintf("%d of %s", n, v))
		}
		slices.Sort(all)
		out = append(out, Finding{Where: where, Level: Note, Found: "services of several versions are alive: " + strings.Join(all, ", ") + "; this program is " + c.Version, Fix: "bring all to one version when the upgrade is over"})
	}
	if len(out) == 0 {
		return found(where, OK, fmt.Sprintf("%d scanners and %d dispatchers are alive", scanners, dispatchers), "")
	}
	return out
}

// electionKind compares the election of this configuration with the dispatchers' one. Scanners do
// not elect, and a starting dispatcher has not noted an election yet.
func electionKind(c Config, d *database, where string) []Finding {
	mine := c.Settings.Election.Kind
	switch {
	case c.Running || !c.Disk || d.elected == "":
		return nil
	case d.elected != mine:
		return found(where, Failure, "dispatchers elect by "+d.elected+", and election.kind is "+mine+" here: a dispatcher with this setting gets no slots while they are alive", "set the same election.kind everywhere")
	}
	return found(where, OK, "dispatchers elect by "+mine, "")
}

// indexKind compares the index of this configuration with the services' one.
func indexKind(c Config, d *database, where string) []Finding {
	mine := c.Settings.Index.Kind
	switch {
	case c.Running || d.indexed == "":
		return nil
	case d.indexed != mine:
		return found(where, Failure, "services have index.kind "+d.indexed+", and it is "+mine+" here: a service with this setting does not start while they are alive", "set the same index.kind everywhere")
	}
	return found(where, OK, "services have index.kind "+mine, "")
}
