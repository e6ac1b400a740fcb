/* A model provider that costs next to nothing: Chat Completions and Responses over SSE, one thread, epoll.

   It prints its port and serves until its stdin ends. The question says how it answers, whatever the model is called
   and whatever was added to the request on its way: "bench:one", "bench:flat-4000" (tokens, all at once),
   "bench:paced-100-50" (tokens, milliseconds between them), "bench:step-100-50" (tokens; each stream is in one of 50
   groups, and has a token when it is its group's turn) or "bench:idle" (one token, then silence).

   A connection that says "S" for a request is the one who gives the turns: the next group has its tokens, and the answer
   is how many those were. With "R" it begins: streams that are left of another load are ended. */
#include "answers.h"

/* Streams of one pace are due in the order in which they were queued: a list does for a heap. */
static struct pace {
    int64_t period_ns;
    struct stream *first, *last;
} paces[8];

#define MAX_GROUPS 1000
static struct stream *groups[MAX_GROUPS];
static int group_count, joining, turn;

static struct stream *asker; /* who gives the turns, and what it asked for: done after the events that are at hand */
static char asked_for;

static int poll_fd, timer_fd;

static void drop(struct stream *s) {
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    if (s == asker)
        asker = NULL;
    if (s->queued)
        return;
    free(s->in.data);
    free(s->out.data);
    free(s->text.data);
    free(s);
}

/* Writes what the socket takes. False: the connection is gone, and so is the stream. */
static int flush(struct stream *s) {
    while (s->written < s->out.length) {
        ssize_t wrote = write(s->fd, s->out.data + s->written, s->out.length - s->written);
        if (wrote < 0 && errno != EAGAIN) {
            drop(s);
            return 0;
        }
        if (wrote < 0)
            break;
        s->written += (size_t)wrote;
        if (s->written == s->out.length && s->sliced) {
            s->out.length = s->written = 0;
            say_slice(s);
        }
    }
    int waits = s->written < s->out.length;
    if (!waits)
        s->out.length = s->written = 0;
    if (waits != s->waiting_for_room) {
        struct epoll_event wanted = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = s};
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, s->fd, &wanted);
        s->waiting_for_room = waits;
    }
    return 1;
}

static void queue(struct stream *s) {
    struct pace *pace = paces;
    while (pace->period_ns && pace->period_ns != s->period_ns)
        pace++;
    if (pace == paces + 8)
        exit(2);
    pace->period_ns = s->period_ns;
    s->queued = 1;
    s->next = NULL;
    *(pace->first ? &pace->last->next : &pace->first) = s;
    pace->last = s;
}

/* Sends the tokens that are due; nanoseconds until the next ones, 0 when none are waited for. */
static int64_t tick(void) {
    int64_t wait_ns = 0;
    for (struct pace *pace = paces; pace < paces + 8 && pace->period_ns; pace++) {
        struct stream *s;
        while ((s = pace->first) && s->due_ns <= now_ns()) {
            pace->first = s->next;
            s->queued = 0;
            if (s->fd < 0) {
                drop(s);
                continue;
            }
            say_token(s);
            if (s->sent == s->tokens)
                end(s);
            s->due_ns += pace->period_ns;
            if (s->sent < s->tokens)
                queue(s);
            flush(s);
        }
        int64_t left = s ? s->due_ns - now_ns() : 0;
        if (s && (!wait_ns || left < wait_ns))
            wait_ns = left > 1000 ? left : 1000;
    }
    return wait_ns;
}

static void join_group(struct stream *s, int count) {
    if (count < 1 || count > MAX_GROUPS)
        exit(2);
    if (count != group_count) /* a load with other slices begins anew */
        joining = turn = 0;
    group_count = count;
    s->queued = 1;
    s->next = groups[joining];
    groups[joining] = s;
    joining = (joining + 1) % count;
}

/* One token for each stream of the group whose turn it is; how many had one. */
static int step(void) {
    int said = 0;
    struct stream *s = groups[turn], *next;
    groups[turn] = NULL;
    for (; s; s = next) {
        next = s->next;
        s->queued = 0;
        if (s->fd < 0) {
            drop(s);
            continue;
        }
        say_token(s);
        said++;
        if (s->sent == s->tokens) {
            end(s);
        } else {
            s->queued = 1;
            s->next = groups[turn];
            groups[turn] = s;
        }
        flush(s);
    }
    if (group_count)
        turn = (turn + 1) % group_count;
    return said;
}

/* Streams that an earlier load has left are ended. */
static int forget_groups(void) {
    for (int i = 0; i < MAX_GROUPS; i++)
        for (struct stream *s = groups[i], *next; s; s = next) {
            next = s->next;
            s->queued = 0;
            drop(s);
        }
    memset(groups, 0, sizeof groups);
    joining = turn = 0;
    return 0;
}

static void answer_asker(void) {
    char said[16];
    int length = snprintf(said, sizeof said, "%d\n", asked_for == 'S' ? step() : forget_groups());
    struct stream *s = asker;
    asker = NULL;
    if (!s)
        return;
    append(&s->out, said, (size_t)length);
    flush(s);
}

static void whole_answer(struct stream *s, const char *json) {
    char head[128];
    append(&s->out, head, (size_t)snprintf(head, sizeof head,
           "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n", strlen(json)));
    append(&s->out, json, strlen(json));
}

static int answer(struct stream *s, const char *body) {
    int tokens = 1, pace_ms = 0, group = 0;
    const char *asked = strstr(body, "bench:");
    s->responses = memmem(s->in.data, s->in.length < 64 ? s->in.length : 64, "/responses", 10) != NULL;
    s->usage = strstr(body, "\"include_usage\"") != NULL;
    s->sent = s->sliced = 0;
    if (s->in.data[0] == 'G' || !asked) { /* what routers ask before they trust a worker */
        whole_answer(s, "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"owned_by\":\"bench\"}]}");
        return flush(s);
    }
    if (sscanf(asked, "bench:paced-%d-%d", &tokens, &pace_ms) < 2)
        sscanf(asked, "bench:flat-%d", &tokens);
    int is_stepped = sscanf(asked, "bench:step-%d-%d", &tokens, &group) == 2;
    s->tokens = tokens;
    if (is_stepped) {
        begin(s);
        say_token(s);
        if (s->sent < tokens)
            join_group(s, group);
        else
            end(s);
        return flush(s);
    }
    if (pace_ms) {
        begin(s);
        s->period_ns = pace_ms * 1000000LL;
        s->due_ns = now_ns() + s->period_ns;
        say_token(s);
        if (s->sent < tokens)
            queue(s);
        else
            end(s);
        return flush(s);
    }
    said_at_once(s, strncmp(asked, "bench:idle", 10));
    return flush(s);
}

static void readable(struct stream *s) {
    char data[65536];
    ssize_t got = read(s->fd, data, sizeof data);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN)
            drop(s);
        return;
    }
    append(&s->in, data, (size_t)got);
    if (s->in.data[0] == 'S' || s->in.data[0] == 'R') {
        asker = s;
        asked_for = s->in.data[0];
        s->in.length = 0;
        return;
    }
    append(&s->in, "", 1); /* for the functions of string.h */
    s->in.length--;
    char *body = strstr(s->in.data, "\r\n\r\n");
    if (!body)
        return;
    const char *length = strcasestr(s->in.data, "\r\ncontent-length:");
    size_t wanted = length && length < body ? strtoul(length + 17, NULL, 10) : 0;
    if (s->in.length < (size_t)(body + 4 - s->in.data) + wanted)
        return;
    if (answer(s, body + 4))
        s->in.length = 0;
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    signal(SIGPIPE, SIG_IGN);
    most_files();
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096))
        die("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    poll_fd = epoll_create1(0);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    int marks[3] = {0, listener, timer_fd}; /* `data.ptr` of what is not a stream points in here */
    for (int i = 0; i < 3; i++)
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, marks[i], &(struct epoll_event){.events = EPOLLIN, .data.ptr = &marks[i]});
    struct epoll_event events[512];
    for (;;) {
        int count = epoll_wait(poll_fd, events, 512, -1), fd;
        for (int i = 0; i < count; i++) {
            struct stream *s = events[i].data.ptr;
            if (events[i].data.ptr == &marks[0]) {
                char byte;
                if (read(0, &byte, 1) <= 0)
                    return 0;
            } else if (events[i].data.ptr == &marks[1]) {
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    no_delay(fd);
                    s = calloc(1, sizeof *s);
                    s->fd = fd;
                    epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = s});
                }
            } else if (events[i].data.ptr != &marks[2]) {
                if (!(events[i].events & EPOLLOUT) || flush(s))
                    if (events[i].events & ~(uint32_t)EPOLLOUT)
                        readable(s);
            }
        }
        if (asker)
            answer_asker();
        int64_t wait_ns = tick();
        struct itimerspec when = {.it_value = {wait_ns / 1000000000, wait_ns % 1000000000}};
        timerfd_settime(timer_fd, 0, &when, NULL);
    }
}
