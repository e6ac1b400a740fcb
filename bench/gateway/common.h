/* What the provider and the load generator share: the clock, the token, numbers in base 36, sockets.

   A token is 12 bytes: '~', four digits of its number in the stream, seven digits of when it was sent (microseconds
   of the monotonic clock, modulo 36^7). No other byte of a stream is a '~'. The number says whether a token is missing
   or was said again (a Responses stream repeats the whole text at its end), the time gives provider to client. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define TOKEN_BYTES 12
#define CLOCK_WRAP 78364164096LL /* 36^7 */

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void put36(char *to, int digits, int64_t value) {
    while (digits--) {
        to[digits] = "0123456789abcdefghijklmnopqrstuvwxyz"[value % 36];
        value /= 36;
    }
}

static inline int64_t get36(const char *from, int digits) {
    int64_t value = 0;
    for (int i = 0; i < digits; i++)
        value = value * 36 + (from[i] <= '9' ? from[i] - '0' : from[i] - 'a' + 10);
    return value;
}

static inline void put_token(char *to, int64_t number, int64_t sent_ns) {
    to[0] = '~';
    put36(to + 1, 4, number);
    put36(to + 5, 7, sent_ns / 1000 % CLOCK_WRAP);
}

static inline void die(const char *what) {
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    exit(1);
}

static inline void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline void most_files(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}
