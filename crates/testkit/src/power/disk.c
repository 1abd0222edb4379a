/*
 * A disk that forgets, loaded between a program and the C library (LD_PRELOAD).
 *
 * DISK_DATA and DISK_UNDO, directories: before a write to a file below the first, what it replaces is
 * noted in a file of the second that is named after the inode; fsync empties that file. Whoever puts the
 * notes back, the last first, has the files as they were when they were last synced. Each note is
 *
 *     offset, length, size of the file, length of the bytes that follow   (8 bytes each, native)
 *     the bytes that were there
 *
 * and a length of zero means that the file was cut or extended to `offset`. A note is written before its
 * write, so one that is not whole belongs to a write that never was.
 *
 * DISK_LIE, a path: while there is a file, fsync reports success and does nothing.
 *
 * The index of SQLite's log (-shm) is left out: it is rebuilt after a crash and never synced.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* One at a time, so that no write slips between a sync and the emptying of the notes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int lies(void)
{
    const char *flag = getenv("DISK_LIE");
    return flag && access(flag, F_OK) == 0;
}

static void fail(const char *what)
{
    perror(what);
    abort();
}

/* The path of the notes about a file, or false if it is none of ours. */
static int notes_of(int fd, struct stat *info, char *path, size_t size)
{
    const char *data = getenv("DISK_DATA"), *undo = getenv("DISK_UNDO");
    char link[64], name[4096];
    if (!data || !undo || fstat(fd, info) || !S_ISREG(info->st_mode))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0)
        return 0;
    name[length] = 0;
    if (strncmp(name, data, strlen(data)) || (length > 4 && !strcmp(name + length - 4, "-shm")))
        return 0;
    snprintf(path, size, "%s/%ju", undo, (uintmax_t)info->st_ino);
    return 1;
}

/* Notes what a write of `length` bytes at `offset` replaces; of a new size if `length` is 0. */
static void note(int fd, off_t offset, size_t length)
{
    struct stat info;
    char path[4096];
    if (!notes_of(fd, &info, path, sizeof path))
        return;
    off_t end = length ? offset + (off_t)length : info.st_size;
    if (end > info.st_size)
        end = info.st_size;
    uint64_t kept = end > offset ? end - offset : 0;
    char *text = malloc(32 + kept);
    if (!text)
        fail("malloc");
    uint64_t head[4] = {offset, length, info.st_size, kept};
    memcpy(text, head, 32);
    /* The program may have opened it for writing only. */
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int in = kept ? open(link, O_RDONLY | O_CLOEXEC) : -1;
    for (uint64_t done = 0; done < kept;) {
        ssize_t got = pread(in, text + 32 + done, kept - done, offset + done);
        if (got <= 0)
            fail("read what is replaced");
        done += got;
    }
    if (in >= 0)
        close(in);
    int out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0 || syscall(SYS_write, out, text, 32 + kept) != (ssize_t)(32 + kept))
        fail(path);
    close(out);
    free(text);
}

static int sync_with(long number, int fd)
{
    struct stat info;
    char path[4096];
    if (lies())
        return 0;
    pthread_mutex_lock(&lock);
    int result = syscall(number, fd);
    if (result == 0 && notes_of(fd, &info, path, sizeof path) && truncate(path, 0) && errno != ENOENT)
        fail(path);
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) { return sync_with(SYS_fsync, fd); }

int fdatasync(int fd) { return sync_with(SYS_fdatasync, fd); }

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
    pthread_mutex_lock(&lock);
    if (length)
        note(fd, offset, length);
    ssize_t result = syscall(SYS_pwrite64, fd, bytes, length, offset);
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    return pwrite64(fd, bytes, length, offset);
}

int ftruncate64(int fd, off64_t size)
{
    pthread_mutex_lock(&lock);
    note(fd, size, 0);
    int result = syscall(SYS_ftruncate, fd, size);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    struct stat info;
    char path[4096];
    size_t length = 0;
    /* Sockets and logs take the short way: they may block, and they are not the disk. */
    if (!notes_of(fd, &info, path, sizeof path))
        return syscall(SYS_writev, fd, parts, count);
    for (int i = 0; i < count; i++)
        length += parts[i].iov_len;
    pthread_mutex_lock(&lock);
    int appends = fcntl(fd, F_GETFL) & O_APPEND;
    if (length)
        note(fd, lseek(fd, 0, appends ? SEEK_END : SEEK_CUR), length);
    ssize_t result = syscall(SYS_writev, fd, parts, count);
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    struct iovec part = {(void *)bytes, length};
    return writev(fd, &part, 1);
}
