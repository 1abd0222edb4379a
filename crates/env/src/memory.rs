//! How much memory there is.

/// Bytes of memory that this process and what the system keeps of its files may use together: those of the machine, or
/// of its container if that has less. None where the system does not tell.
pub fn memory_bytes() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let machine = read("/proc/meminfo").as_deref().and_then(total);
        let groups = read("/proc/self/cgroup").unwrap_or_default();
        let limits = limit_files(&groups).into_iter();
        let limits = limits.filter_map(|file| read(&file)?.trim().parse::<u64>().ok());
        machine.into_iter().chain(limits).min()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// What `/proc/meminfo` says of the machine.
#[cfg(any(target_os = "linux", test))]
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Where the limits of the groups stand that a process is in, by what `/proc/self/cgroup` says. A group within another is held
/// to the limit of both.
#[cfg(any(target_os = "linux", test))]
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{name}"));
            let Some(end) = path.rfind('/') else { break };
            path = &path[..end];
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells() {
        let text = "MemFree:  1 kB\nMemTotal:       24576000 kB\nMemFree: 2 kB\n";
        assert_eq!(total(text), Some(24_576_000 * 1024));
        for odd in
            ["", "MemTotal:", "MemTotal: x kB", "MemTotal: 5", "MemTotal: 99999999999999999 kB"]
        {
            assert_eq!(total(odd), None, "{odd}");
        }
    }

    #[test]
    fn groups_are_looked_up_to_the_root() {
        assert_eq!(
            limit_files("0::/a/b\n"),
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(
            limit_files("4:cpu,memory:/x\n3:cpuset:/y\n1:name=systemd:/z\nnonsense\n"),
            [
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
        assert_eq!(limit_files("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn there_is_some() {
        assert!(memory_bytes().is_some_and(|bytes| 1 << 20 < bytes));
    }
}
