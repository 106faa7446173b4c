//! What the operating system says about this machine: free memory and the processor's name.

use crate::DeviceError;
use std::fs;
use std::path::{Path, PathBuf};

/// Taken as free where the system does not say.
const UNKNOWN_FREE: u64 = 4 << 30;

/// Bytes that can still be allocated: what the system has available, less where a control group allows less.
pub(super) fn free_bytes() -> u64 {
    let available = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| mem_available(&text));
    let available = available.unwrap_or(UNKNOWN_FREE);
    control_group_free().map_or(available, |free| available.min(free))
}

/// An `OutOfMemory` error unless `bytes` are free.
pub(super) fn ensure_free(what: &str, bytes: u64) -> Result<(), DeviceError> {
    /// Less than this is not worth asking the system about.
    const SMALL: u64 = 1 << 20;
    if bytes <= SMALL {
        return Ok(());
    }
    if bytes <= free_bytes() {
        return Ok(());
    }
    Err(out_of_memory(what, bytes))
}

/// Bytes that a file in memory takes already.
pub(super) fn held(file: &fs::File) -> u64 {
    use std::os::unix::fs::MetadataExt;
    /// What `blocks` counts in, whatever the file system's own unit.
    const BLOCK: u64 = 512;
    file.metadata().map_or(0, |file| file.blocks() * BLOCK)
}

/// The error of an allocation that found too little.
pub(super) fn out_of_memory(what: &str, bytes: u64) -> DeviceError {
    DeviceError::OutOfMemory {
        what: what.to_owned(),
        needed_bytes: bytes,
        free_bytes: free_bytes(),
    }
}

/// The processor's own name.
pub(super) fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim())
        .to_owned()
}

/// `MemAvailable` of /proc/meminfo, in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// What the tightest control group of this process leaves; `None` without one.
fn control_group_free() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups
        .lines()
        .filter_map(group_folder)
        .flat_map(|(root, folder, names)| levels(&root, &folder, names))
        .min()
}

/// File names of limit and use, and the entry of `memory.stat` that counts file pages the system can drop.
type Names = [&'static str; 3];
const V2: Names = ["memory.max", "memory.current", "inactive_file "];
const V1: Names = [
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file ",
];

/// Mount point, folder of this process and file names, from a line `id:controllers:path` of /proc/self/cgroup.
fn group_folder(line: &str) -> Option<(PathBuf, PathBuf, Names)> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (root, names) = match controllers {
        "" => ("/sys/fs/cgroup", V2),
        list if list.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", V1),
        _ => return None,
    };
    Some((
        root.into(),
        Path::new(root).join(path.trim_start_matches('/')),
        names,
    ))
}

/// What each level from `folder` up to `root` leaves. Inside a container the folder may not exist, but the root does.
fn levels(root: &Path, folder: &Path, names: Names) -> Vec<u64> {
    let inside = folder
        .ancestors()
        .take_while(|level| level.starts_with(root));
    inside
        .filter_map(|level| level_free(level, names))
        .collect()
}

fn level_free(level: &Path, [limit, used, inactive]: Names) -> Option<u64> {
    let number = |name: &str| {
        fs::read_to_string(level.join(name))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let (limit, used) = (number(limit)?, number(used)?);
    let stat = fs::read_to_string(level.join("memory.stat")).unwrap_or_default();
    let droppable = stat
        .lines()
        .find_map(|line| line.strip_prefix(inactive)?.trim().parse().ok());
    Some(limit.saturating_sub(used.saturating_sub(droppable.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        assert_eq!(
            mem_available("MemTotal: 9 kB\nMemAvailable:   24 kB\n"),
            Some(24 * 1024)
        );
        assert_eq!(mem_available("MemFree: 1 kB\n"), None);
        assert!(free_bytes() > 0);
    }

    #[test]
    fn a_control_group_counts_what_it_can_drop_as_free() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let write =
            |level: &Path, name: &str, text: &str| fs::write(level.join(name), text).unwrap();
        write(&inner, "memory.max", "max\n");
        write(&inner, "memory.current", "10\n");
        write(folder.path(), "memory.max", "1000\n");
        write(folder.path(), "memory.current", "600\n");
        write(folder.path(), "memory.stat", "anon 3\ninactive_file 100\n");
        assert_eq!(levels(folder.path(), &inner, V2), vec![500]);
    }

    #[test]
    fn group_lines_of_both_versions_are_understood() {
        assert_eq!(
            group_folder("0::/user").unwrap().1,
            Path::new("/sys/fs/cgroup/user")
        );
        let (_, folder, names) = group_folder("5:cpu,memory:/x").unwrap();
        assert_eq!(
            (folder.as_path(), names),
            (Path::new("/sys/fs/cgroup/memory/x"), V1)
        );
        assert!(group_folder("4:cpuset:/x").is_none());
    }

    #[test]
    fn more_than_there_is_is_refused_with_the_numbers() {
        let error = ensure_free("weights", u64::MAX).unwrap_err();
        assert!(matches!(
            error,
            DeviceError::OutOfMemory {
                needed_bytes: u64::MAX,
                ..
            }
        ));
    }
}
