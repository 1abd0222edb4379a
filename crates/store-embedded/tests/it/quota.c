/*
 * Loaded between a program and the C library (LD_PRELOAD): while there is a file of the name in QUOTA_FLAG, every write
 * to a file fails as it does for a user whose quota is exceeded.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_refused(int fd)
{
    struct stat info;
    const char *flag = getenv("QUOTA_FLAG");
    if (!flag || access(flag, F_OK) || fstat(fd, &info) || !S_ISREG(info.st_mode))
        return 0;
    errno = EDQUOT;
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    return is_refused(fd) ? -1 : syscall(SYS_write, fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at)
{
    return is_refused(fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    return pwrite64(fd, bytes, count, at);
}
