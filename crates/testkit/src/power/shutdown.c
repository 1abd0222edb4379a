/*
 * Shuts down the file system of a path without flushing anything, its journal included: from now on it
 * answers with errors, and what is not on the device never gets there. For root.
 */
#include <fcntl.h>
#include <linux/types.h>
#include <stdio.h>
#include <sys/ioctl.h>

#define FS_IOC_SHUTDOWN _IOR('X', 125, __u32)
#define WITHOUT_FLUSHING_THE_LOG 2

int main(int count, char **arguments)
{
    __u32 how = WITHOUT_FLUSHING_THE_LOG;
    int fd = count == 2 ? open(arguments[1], O_RDONLY) : -1;
    if (fd < 0 || ioctl(fd, FS_IOC_SHUTDOWN, &how)) {
        perror("shutdown");
        return 1;
    }
    return 0;
}
