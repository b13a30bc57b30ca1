/* Runs Debian's cron on a clock of its own: each line of stdin is an expression. After the loop has gone from minute FROM to minute TO,
 * both since the epoch, in the zone TZ, it writes for each expression how many jobs were started, or all ones if cron refuses it, and the
 * minute of each, as 32 bits. Built by scripts/debian-cron beside the source of Debian's package. */
#include <unistd.h>
#define main cron_main
#define acquire_daemonlock(close_flag) ((void)0)
#define set_cron_uid() ((void)0)
#define set_cron_cwd() ((void)0)
#define access(path, mode) 0
#include "cron.c"
#undef main
#include <setjmp.h>
#include <stdint.h>

static struct job { uint32_t count, room, *minutes; } *jobs;
static int refused_all = -1;
static time_t now, end;
static jmp_buf done;
static user crontab;

time_t time(time_t *t) {
	if (t)
		*t = now;
	return now;
}

unsigned int sleep(unsigned int seconds) {
	now += seconds;
	if (now >= end)
		longjmp(done, 1);
	return 0;
}

void job_add(entry *e, user *u) {
	struct job *j = &jobs[e->uid];
	uint32_t minute = now / 60;
	if (j->count && j->minutes[j->count - 1] == minute)
		return;
	if (j->count == j->room)
		j->minutes = realloc(j->minutes, (j->room = 2 * j->room + 64) * sizeof minute);
	j->minutes[j->count++] = minute;
}

int job_runqueue() { return 0; }
void check_orphans(cron_db *db) {}
void load_database(cron_db *db) { db->head = db->tail = &crontab; }

int main(int argc, char **argv) {
	static char *arguments[] = {"cron", "-f", NULL};
	static struct passwd pw = {.pw_name = "cron", .pw_dir = "/"};
	char *environment[] = {NULL}, line[1024];
	uint32_t n = 0;
	if (argc != 3)
		return 2;
	now = 60 * atol(argv[1]);
	end = 60 * atol(argv[2]);
	while (fgets(line, sizeof line - 4, stdin)) {
		strcpy(line + strcspn(line, "\n"), " x\n");
		FILE *text = fmemopen(line, strlen(line), "r");
		entry *e = load_entry(text, NULL, &pw, environment);
		fclose(text);
		jobs = realloc(jobs, (n + 1) * sizeof *jobs);
		jobs[n] = (struct job){.count = e ? 0 : refused_all};
		if (e) {
			e->uid = n;
			e->next = crontab.crontab;
			crontab.crontab = e;
		}
		n++;
	}
	if (!setjmp(done))
		cron_main(2, arguments);
	for (uint32_t i = 0; i < n; i++) {
		fwrite(&jobs[i].count, sizeof n, 1, stdout);
		if (jobs[i].count != (uint32_t)refused_all)
			fwrite(jobs[i].minutes, sizeof n, jobs[i].count, stdout);
	}
	return fflush(stdout) != 0;
}
