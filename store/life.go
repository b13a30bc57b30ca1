package store

// A life of the database is one start of one server. A server that was started anew, or took
// another one's place, may lack the last commits of the life before. A claim may be among them. The
// database then shows a task as pending that a dispatcher has in memory and is about to send.
//
// Each slot's row names the life in which the slot was last taken or claimed. Both prove that the
// owner's memory and the row agree about claimed. A slot is unsure in any other life. Tasks behind
// claimed in an unsure slot are neither cancelled nor changed: see task.Unsure. The owner looks at
// its slots once a second, and makes them sure again by Claim or Acquire.
//
// An older program takes slots without naming a life. The row's life_epoch is then not its epoch,
// and the slot counts as sure.

// serverLife is the life of MySQL and MariaDB, as each connection notes it when it begins.
const serverLife = "COALESCE(@notyet_life, '')"

// noteLife makes serverLife name the server and its start. Uptime counts from the start to the time
// of the statement, in whole seconds, and UNIX_TIMESTAMP is that time: their difference is exact.
// The comments let MariaDB read one table, and MySQL the other.
const noteLife = "SET @notyet_life = (SELECT LEFT(SHA2(CONCAT_WS(' ', @@hostname, @@port, @@server_id, UNIX_TIMESTAMP() - variable_value), 256), 32)" +
	" FROM /*M! information_schema.global_status */ /*!80000 performance_schema.global_status */ WHERE variable_name = 'Uptime')"
