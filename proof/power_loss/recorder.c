/* Records what a process does to the files of one directory: preloaded (LD_PRELOAD) into it and all that it starts.
 *
 * POWER_LOSS_DIR is the directory, POWER_LOSS_LOG the log. Each call is made and then logged under one lock that all
 * processes share, so the log has them in the order in which they were done. A record is six numbers of 64 bits (what,
 * offset, length of the data, length of the path, of the second path, nothing) and then the paths and the data.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE, SYNC, CREATE, RENAME, UNLINK, MKDIR, RMDIR };

static char watched[4096];
static size_t watched_length;
static int log_fd = -1;
static pthread_mutex_t *lock;

__attribute__((constructor)) static void begin(void) {
  const char *directory = getenv("POWER_LOSS_DIR"), *log = getenv("POWER_LOSS_LOG");
  if (!directory || !log) return;
  char name[4096];
  snprintf(name, sizeof name, "%s.lock", log);
  int fd = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_CLOEXEC | O_EXCL, 0666);
  int first = fd >= 0;
  if (!first) fd = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0666);
  if (first && syscall(SYS_ftruncate, fd, 4096) < 0) return;
  lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (lock == MAP_FAILED) return;
  if (first) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attributes);
  }
  log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  log_fd = fcntl(log_fd, F_DUPFD_CLOEXEC, 900); /* out of the way of programs that close what they know */
  watched_length = snprintf(watched, sizeof watched, "%s/", directory);
}

static int is_watched(const char *path) { return log_fd >= 0 && !strncmp(path, watched, watched_length); }

static int path_of(int fd, char *path) {
  if (log_fd < 0) return 0;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, 4090);
  if (length <= 0) return 0;
  path[length] = 0;
  if (is_watched(path)) return !strstr(path + watched_length, " (deleted)");
  strcat(path, "/"); /* the directory itself */
  return !strcmp(path, watched);
}

static int absolute(int directory, const char *name, char *path) {
  if (log_fd < 0 || !name) return 0;
  if (name[0] == '/') {
    snprintf(path, 4096, "%s", name);
  } else if (directory == AT_FDCWD) {
    if (!getcwd(path, 4000)) return 0;
    size_t length = strlen(path);
    snprintf(path + length, 4096 - length, "/%s", !strncmp(name, "./", 2) ? name + 2 : name);
  } else {
    return 0;
  }
  return is_watched(path);
}

static void enter(void) {
  if (pthread_mutex_lock(lock) == EOWNERDEAD) pthread_mutex_consistent(lock);
}

static void leave(int what, const char *path, const char *second, uint64_t offset, const struct iovec *parts, int count,
                  uint64_t length) {
  int error = errno;
  uint64_t head[6] = {what, offset, length, strlen(path), second ? strlen(second) : 0, 0};
  struct iovec all[64] = {{head, sizeof head}, {(void *)path, head[3]}, {(void *)second, head[4]}};
  int used = 3;
  for (int i = 0; i < count && length && used < 64; i++) {
    size_t part = parts[i].iov_len < length ? parts[i].iov_len : length;
    all[used++] = (struct iovec){parts[i].iov_base, part};
    length -= part;
  }
  if (syscall(SYS_writev, log_fd, all, used) < 0) abort();
  pthread_mutex_unlock(lock);
  errno = error;
}

static void forget(void) {
  int error = errno;
  pthread_mutex_unlock(lock);
  errno = error;
}

static ssize_t writing(int fd, const struct iovec *parts, int count, int64_t offset) {
  char path[4200];
  int known = path_of(fd, path);
  if (known) enter();
  ssize_t done = offset < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, offset, 0);
  if (!known) return done;
  if (done <= 0) {
    forget();
    return done;
  }
  if (offset < 0) offset = syscall(SYS_lseek, fd, 0, SEEK_CUR) - done;
  leave(WRITE, path, NULL, offset, parts, count, done);
  return done;
}

ssize_t write(int fd, const void *data, size_t length) {
  if (log_fd < 0) return syscall(SYS_write, fd, data, length);
  struct iovec part = {(void *)data, length};
  char path[4200];
  if (!path_of(fd, path)) return syscall(SYS_write, fd, data, length);
  return writing(fd, &part, 1, -1);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
  struct iovec part = {(void *)data, length};
  return writing(fd, &part, 1, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) { return pwrite(fd, data, length, offset); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return writing(fd, parts, count, -1); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return writing(fd, parts, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
  return writing(fd, parts, count, offset);
}

static int on_file(int what, int fd, int64_t length, long number) {
  char path[4200];
  int known = path_of(fd, path);
  if (known) enter();
  int done = what == TRUNCATE ? syscall(number, fd, length) : syscall(number, fd);
  if (known && !done) leave(what, path, NULL, length, NULL, 0, 0);
  if (known && done) forget();
  return done;
}
int ftruncate(int fd, off_t length) { return on_file(TRUNCATE, fd, length, SYS_ftruncate); }
int ftruncate64(int fd, off64_t length) { return on_file(TRUNCATE, fd, length, SYS_ftruncate); }
int fsync(int fd) { return on_file(SYNC, fd, 0, SYS_fsync); }
int fdatasync(int fd) { return on_file(SYNC, fd, 0, SYS_fdatasync); }

static int opening(int directory, const char *name, int flags, int mode) {
  char path[4200];
  int known = (flags & (O_CREAT | O_TRUNC)) && absolute(directory, name, path);
  if (known) enter();
  int was = known && !syscall(SYS_faccessat, AT_FDCWD, path, F_OK, 0);
  int fd = syscall(SYS_openat, directory, name, flags, mode);
  if (!known) return fd;
  if (fd < 0 || (was && !(flags & O_TRUNC))) forget();
  else leave(was ? TRUNCATE : CREATE, path, NULL, 0, NULL, 0, 0);
  return fd;
}
#define OPEN(name, before, directory) \
  int name(before const char *path, int flags, ...) { \
    va_list rest; \
    va_start(rest, flags); \
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; \
    va_end(rest); \
    return opening(directory, path, flags, mode); \
  }
#define AT int directory,
OPEN(open, , AT_FDCWD)
OPEN(open64, , AT_FDCWD)
OPEN(openat, AT, directory)
OPEN(openat64, AT, directory)

static int on_path(int what, const char *name, const char *second, int mode) {
  char path[4200], other[4200] = "";
  int known = absolute(AT_FDCWD, name, path);
  if (second) absolute(AT_FDCWD, second, other);
  if (known) enter();
  int done;
  if (what == RENAME) done = syscall(SYS_renameat2, AT_FDCWD, name, AT_FDCWD, second, 0);
  else if (what == MKDIR) done = syscall(SYS_mkdirat, AT_FDCWD, name, mode);
  else done = syscall(SYS_unlinkat, AT_FDCWD, name, what == RMDIR ? AT_REMOVEDIR : 0);
  if (known && !done) leave(what, path, second ? other : NULL, 0, NULL, 0, 0);
  if (known && done) forget();
  return done;
}
int rename(const char *name, const char *second) { return on_path(RENAME, name, second, 0); }
int unlink(const char *name) { return on_path(UNLINK, name, NULL, 0); }
int mkdir(const char *name, mode_t mode) { return on_path(MKDIR, name, NULL, mode); }
int rmdir(const char *name) { return on_path(RMDIR, name, NULL, 0); }
