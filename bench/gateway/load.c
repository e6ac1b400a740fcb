/* The load generator: many readers of token streams in one thread, and what they saw as one line of JSON.

       load PORT PATH BODY requests STREAMS TOKENS SECONDS           each asks again as soon as its answer is whole
       load PORT PATH BODY streams  STREAMS TOKENS SECONDS ARRIVAL_S each asks once, arrivals spread over ARRIVAL_S
       load PORT PATH BODY idle     STREAMS TOKENS SECONDS           opens them, prints, holds them until stdin ends
       load PORT PATH BODY steps    STREAMS TOKENS SECONDS SLICE_US PIDS PROVIDER_PORT
                                                                     in step with the program of these processes

   PATH may be "GET /path", which sends no BODY. TOKENS is what each answer must have to count as whole, SECONDS the time after which the rest is given up.

   Times of tokens are the provider's clock inside the token against this one: the same clock, one machine. */
#include "common.h"

enum state { CONNECTING, HEAD, SIZE, DATA, DATA_END, TRAILER, LENGTH, ENDED };

struct reader {
    int fd;
    enum state state;
    int next, head_length, status, closes, held_length;
    size_t left;
    int64_t asked_ns, first_ns;
    char head[2048], held[TOKEN_BYTES]; /* held: the beginning of a token whose rest is in the next read */
};

#define BUCKETS 1000000 /* of 10 microseconds: ten seconds */
struct spread {
    uint32_t count[BUCKETS];
    int64_t total, most_us;
};

static struct spread latency, first_token;
static struct reader *readers;
static struct sockaddr_in gateway;
static char *request;
static size_t request_length;
static int poll_fd, expected, wanted, paced, repeats, began, ended, failed, in_flight;
static int64_t whole, tokens, repeated, last_token_ns, pause_ns, started_ns, last_end_ns;
static char failure[400];

static void note(struct spread *s, int64_t us) {
    int64_t bucket = us < 0 ? 0 : us / 10;
    s->count[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    s->total++;
    if (us > s->most_us)
        s->most_us = us;
}

static double percentile_ms(struct spread *s, double share) {
    int64_t seen = 0;
    for (int i = 0; i < BUCKETS; i++)
        if ((seen += s->count[i]) > 0 && seen >= share * (double)s->total)
            return i / 100.0;
    return 0;
}

#include "lockstep.h"

static void start(struct reader *r);

static void token(struct reader *r, const char *at, int64_t now) {
    if (get36(at + 1, 4) != r->next) {
        repeated++; /* the whole text at the end of a Responses stream; a gap never closes, and the stream is not whole */
        return;
    }
    r->next++;
    tokens++;
    if (!r->first_ns) {
        r->first_ns = now;
        note(&first_token, (now - r->asked_ns) / 1000);
    }
    if (paced) {
        int64_t late_us = (now / 1000 % CLOCK_WRAP - get36(at + 5, 7) + CLOCK_WRAP) % CLOCK_WRAP;
        note(&latency, late_us);
        /* a pause of the gateway is one while every stream runs: not before the last has begun, not after the first end */
        if (began == expected && !ended && last_token_ns && now - last_token_ns > pause_ns)
            pause_ns = now - last_token_ns;
        last_token_ns = began == expected ? now : 0;
    }
    if (r->next == 1)
        began++;
}

static void body(struct reader *r, const char *data, size_t length, int64_t now) {
    if (r->held_length) {
        size_t missing = TOKEN_BYTES - (size_t)r->held_length, take = missing < length ? missing : length;
        memcpy(r->held + r->held_length, data, take);
        r->held_length += (int)take;
        if (r->held_length < TOKEN_BYTES)
            return;
        r->held_length = 0;
        token(r, r->held, now);
        data += take;
        length -= take;
    }
    const char *end = data + length, *at;
    while ((at = memchr(data, '~', (size_t)(end - data)))) {
        if (end - at < TOKEN_BYTES) {
            r->held_length = (int)(end - at);
            memcpy(r->held, at, (size_t)(end - at));
            return;
        }
        token(r, at, now);
        data = at + TOKEN_BYTES;
    }
}

static void over(struct reader *r, int closed, int64_t now) {
    last_end_ns = now;
    in_flight--;
    ended++;
    int is_whole = r->state == ENDED && r->status == 200 && r->next == wanted;
    whole += is_whole;
    if (!is_whole && !failed++)
        snprintf(failure, sizeof failure, "status %d, state %d, %d tokens: %.200s", r->status, r->state, r->next, r->head);
    if (closed || r->closes || !repeats) {
        struct linger now_gone = {1, 0}; /* no TIME_WAIT: the ports are needed again */
        setsockopt(r->fd, SOL_SOCKET, SO_LINGER, &now_gone, sizeof now_gone);
        close(r->fd);
        r->fd = -1;
    }
    if (repeats)
        start(r);
}

static void head(struct reader *r) {
    r->status = atoi(r->head + 9);
    r->closes = strcasestr(r->head, "\r\nconnection: close") != NULL;
    const char *length = strcasestr(r->head, "\r\ncontent-length:");
    r->left = length ? strtoul(length + 17, NULL, 10) : 0;
    r->state = length ? r->left ? LENGTH : ENDED : SIZE;
}

/* HTTP/1.1 in any pieces. */
static void received(struct reader *r, const char *data, size_t length, int64_t now) {
    const char *end = data + length;
    while (data < end && r->state != ENDED) {
        size_t run = (size_t)(end - data);
        switch (r->state) {
        case HEAD:
            if (r->head_length < (int)sizeof r->head - 1)
                r->head[r->head_length++] = *data;
            r->head[r->head_length] = 0;
            if (*data++ == '\n' && r->head_length > 3 && !memcmp(r->head + r->head_length - 4, "\r\n\r\n", 4))
                head(r);
            break;
        case SIZE:
            if (*data == '\n')
                r->state = r->left ? DATA : TRAILER;
            else if (*data != '\r')
                r->left = r->left * 16 + (size_t)get36((char[]){*data | 32}, 1) % 36;
            data++;
            break;
        case DATA:
        case LENGTH:
            run = run < r->left ? run : r->left;
            body(r, data, run, now);
            if (r->status != 200 && !failure[0])
                snprintf(failure, sizeof failure, "status %d: %.*s", r->status, (int)(run < 300 ? run : 300), data);
            data += run;
            if (!(r->left -= run))
                r->state = r->state == DATA ? DATA_END : ENDED;
            break;
        case DATA_END:
            if (*data++ == '\n')
                r->state = SIZE;
            break;
        default: /* TRAILER: the empty line after the last chunk */
            if (*data++ == '\n')
                r->state = ENDED;
        }
    }
    if (r->state == ENDED)
        over(r, 0, now);
}

static void ask(struct reader *r) {
    r->state = HEAD;
    r->asked_ns = now_ns();
    if (write(r->fd, request, request_length) != (ssize_t)request_length)
        die("write");
}

static void start(struct reader *r) {
    r->next = r->head_length = r->status = r->held_length = r->closes = 0;
    r->first_ns = 0;
    r->left = 0;
    in_flight++;
    if (r->fd >= 0) {
        ask(r);
        return;
    }
    r->state = CONNECTING;
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (r->fd < 0)
        die("socket");
    no_delay(r->fd);
    if (connect(r->fd, (struct sockaddr *)&gateway, sizeof gateway) && errno != EINPROGRESS)
        die("connect");
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, r->fd, &(struct epoll_event){.events = EPOLLOUT, .data.ptr = r});
}

static void ready(struct reader *r) {
    static char data[262144];
    if (r->state == CONNECTING) {
        int error = 0;
        getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
        if ((errno = error))
            die("connect");
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, r->fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = r});
        ask(r);
        return;
    }
    ssize_t got = read(r->fd, data, sizeof data);
    if (got > 0)
        received(r, data, (size_t)got, now_ns());
    else if (got == 0 || errno != EAGAIN)
        over(r, 1, now_ns());
}

static void report(int streams) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double seconds = (double)((last_end_ns ? last_end_ns : now_ns()) - started_ns) / 1e9;
    for (char *c = failure; *c; c++)
        *c = *c == '"' || *c == '\\' || (unsigned char)*c < 32 ? '\'' : *c;
    printf("{\"streams\":%d,\"whole\":%ld,\"failed\":%d,\"tokens\":%ld,\"repeated\":%ld,\"seconds\":%.4f,"
           "\"first_ms\":{\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f},\"token_ms\":{\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f},"
           "\"pause_ms\":%.2f,\"stepped_s\":%.4f,\"program_cpu_s\":%.4f,\"load_cpu_s\":%.3f,\"failure\":\"%s\"}\n",
           streams, (long)whole, failed, (long)tokens, (long)repeated, seconds, percentile_ms(&first_token, .5),
           percentile_ms(&first_token, .99), (double)first_token.most_us / 1e3, percentile_ms(&latency, .5),
           percentile_ms(&latency, .99), (double)latency.most_us / 1e3, (double)pause_ns / 1e6,
           (double)steps.due_ns / 1e9, (double)steps.total_ns / 1e9,
           (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6,
           failure);
    fflush(stdout);
}

static int connected(int port) {
    struct sockaddr_in address = {AF_INET, htons((uint16_t)port), {htonl(INADDR_LOOPBACK)}, {0}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        die("connect to the provider");
    no_delay(fd);
    return fd;
}

/* The provider sends one slice ("S"), which has so many tokens, or begins anew ("R"). */
static int64_t provider_does(int provider, const char *what) {
    char line[32];
    size_t length = 0;
    if (write(provider, what, 1) != 1)
        die("the provider");
    do {
        ssize_t got = read(provider, line + length, sizeof line - 1 - length);
        if (got <= 0)
            die("the provider");
        length += (size_t)got;
    } while (line[length - 1] != '\n');
    line[length] = 0;
    return atoll(line);
}

static void serve_readers(int wait_ms) {
    struct epoll_event events[512];
    int count = epoll_wait(poll_fd, events, 512, wait_ms);
    for (int i = 0; i < count; i++)
        ready(events[i].data.ptr);
}

/* False: something did not come in time, or a stream ended too early. */
static int until(const int64_t *counted, int64_t wished, double limit_s) {
    while (*counted < wished && !failed && now_ns() - started_ns < limit_s * 1e9)
        serve_readers(20);
    return *counted >= wished;
}

/* All streams are opened, a few at a time; then slice follows slice until each has its last token. */
static void in_step(int streams, double limit_s, int64_t slice_us, int provider) {
    int64_t due = 0, all = (int64_t)streams * (wanted - 1), left = all;
    provider_does(provider, "R");
    for (int i = 0; i < streams; i++) {
        readers[i].fd = -1;
        start(&readers[i]);
        if (!until(&tokens, i - 15, limit_s))
            return;
    }
    due = streams;
    if (!until(&tokens, due, limit_s))
        return;
    begin_steps(slice_us * 1000);
    while (left > 0 && !failed && now_ns() - started_ns < limit_s * 1e9) {
        int64_t sent = provider_does(provider, "S");
        if (!sent)
            serve_readers(0);
        due += sent;
        left -= sent;
        if (!until(&tokens, due, limit_s))
            return;
        note_slice(all - left > streams && left >= streams, &latency, &pause_ns);
    }
    while (in_flight && now_ns() - started_ns < limit_s * 1e9)
        serve_readers(20);
}

int main(int argc, char **argv) {
    if (argc < 8)
        return 2;
    const char *mode = argv[4];
    int streams = atoi(argv[5]), asked = 0;
    int idle = !strcmp(mode, "idle");
    paced = !strcmp(mode, "streams");
    repeats = !strcmp(mode, "requests");
    expected = paced ? streams : 0;
    wanted = atoi(argv[6]);
    double limit_s = atof(argv[7]), arrival_s = argc > 8 ? atof(argv[8]) : 0;
    signal(SIGPIPE, SIG_IGN);
    most_files();
    gateway = (struct sockaddr_in){AF_INET, htons((uint16_t)atoi(argv[1])), {htonl(INADDR_LOOPBACK)}, {0}};
    const char *method = strncmp(argv[2], "GET ", 4) ? "POST " : "";
    request_length = (size_t)asprintf(&request, "%s%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                                      "Content-Length: %zu\r\n\r\n%s", method, argv[2], strlen(argv[3]), argv[3]);
    readers = calloc((size_t)streams, sizeof *readers);
    poll_fd = epoll_create1(0);
    started_ns = now_ns();
    if (!strcmp(mode, "steps") && argc > 10) {
        watch_program(argv[9]);
        in_step(streams, limit_s, atoll(argv[8]), connected(atoi(argv[10])));
        asked = streams;
        in_flight = 0;
    }
    while (now_ns() - started_ns < limit_s * 1e9 && (asked < streams || in_flight) && !(idle && began == streams)) {
        while (asked < streams && (double)(now_ns() - started_ns) >= arrival_s * 1e9 * asked / streams) {
            readers[asked].fd = -1;
            start(&readers[asked++]);
        }
        serve_readers(asked < streams ? 1 : 20);
    }
    report(streams);
    char byte;
    while (idle && read(0, &byte, 1) > 0)
        ;
    return 0;
}
