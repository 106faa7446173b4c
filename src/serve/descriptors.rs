//! File descriptors: each connection takes one, and a device that starts anew takes a few. Those are kept free for it, so that clients
//! who hold all others cost it nothing.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Taken by the runtime, the ports and the log, and by operators' connections.
const SERVER: u64 = 48;
/// Taken by a device, and by its next life while the former one ends.
const DEVICE: u64 = 16;

/// Has the system grant as many descriptors as it may, and says how many connections that leaves room for, `wanted` at most.
pub fn connections(wanted: usize, devices: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let higher = rustix::process::Rlimit {
            current: limit.maximum,
            ..limit
        };
        match setrlimit(Resource::Nofile, higher) {
            Ok(()) => limit = higher,
            Err(error) => tracing::debug!(%error, "file descriptor limit stays"),
        }
    }
    let possible = room(limit.current, devices as u64);
    if possible < wanted {
        tracing::warn!(
            max_connections = possible,
            wanted,
            descriptors = limit.current,
            "fewer connections than configured, for want of file descriptors (ulimit -n)"
        );
    }
    wanted.min(possible)
}

/// Connections that so many descriptors allow; `None`: there is no limit.
fn room(descriptors: Option<u64>, devices: u64) -> usize {
    let Some(descriptors) = descriptors else {
        return usize::MAX;
    };
    let left = descriptors.saturating_sub(SERVER + DEVICE * devices);
    usize::try_from(left).map_or(usize::MAX, |left| left.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_devices() {
        assert_eq!(room(Some(1024), 1), 960);
        assert_eq!(room(Some(1024), 8), 848);
        assert_eq!(room(Some(20), 1), 1);
        assert_eq!(room(None, 1), usize::MAX);
        assert_eq!(connections(3, 1), 3);
    }
}
