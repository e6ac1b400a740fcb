/* A load that goes in step with the program, and the program's own time.

   A core that a neighbour takes away for half a second makes every stream late, whatever the program is. So the provider
   sends what is due in one slice of a second, waits until every reader has it, and the CPU time that the program used
   for it is read: the kernel counts none of what was taken away. From these times follows when each slice would have
   been done on a core of its own: slices come at their pace, and each waits for the one before it. */

#define MAX_PROCESSES 64

static struct program {
    clockid_t clocks[MAX_PROCESSES];
    int count;
} program;

/* From "12,34": every process of it. */
static void watch_program(const char *pids) {
    for (char *at = (char *)pids; *at && program.count < MAX_PROCESSES; at += *at == ',')
        if (clock_getcpuclockid((pid_t)strtol(at, &at, 10), &program.clocks[program.count++]))
            die("the program's clock");
}

static int64_t program_ns(void) {
    int64_t total = 0;
    struct timespec t;
    for (int i = 0; i < program.count; i++)
        if (!clock_gettime(program.clocks[i], &t)) /* one that has ended counts no more */
            total += t.tv_sec * 1000000000LL + t.tv_nsec;
    return total;
}

static struct lockstep {
    int64_t slice_ns, used_ns, due_ns, done_ns, total_ns; /* all but the first in the program's own time */
} steps;

static void begin_steps(int64_t slice_ns) {
    steps.slice_ns = slice_ns;
    steps.used_ns = program_ns();
}

/* One more slice is with its readers. What beginnings and ends cost is another figure: slices that come right after the
   one or hold the other are not counted. */
static void note_slice(int counts, struct spread *late, int64_t *pause_ns) {
    int64_t used = program_ns(), took = used - steps.used_ns, before = steps.done_ns;
    steps.used_ns = used;
    if (!counts)
        return;
    steps.total_ns += took;
    steps.due_ns += steps.slice_ns;
    steps.done_ns = (steps.done_ns > steps.due_ns ? steps.done_ns : steps.due_ns) + took;
    note(late, (steps.done_ns - steps.due_ns) / 1000);
    if (before && steps.done_ns - before > *pause_ns)
        *pause_ns = steps.done_ns - before;
}
