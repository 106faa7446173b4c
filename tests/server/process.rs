//! A real server process on a free port, ended when the test drops it.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running `ropeteam serve`.
pub struct Server {
    child: Child,
    /// Main port on 127.0.0.1.
    pub port: u16,
    /// Management port, where a test asked for one.
    pub management: Option<u16>,
}

/// The folder of a tiny model in `tests/fixtures/tiny`.
pub fn tiny(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tiny")
        .join(name)
}

/// The binary with a clean environment as far as Ropeteam is concerned.
pub fn ropeteam() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropeteam"));
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("ROPETEAM_")) {
        command.env_remove(name);
    }
    command
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
    probe.local_addr().expect("its address").port()
}

/// Sends a signal to a process.
pub fn signal(name: &str, pid: u32) {
    let kill = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(kill.success(), "kill -{name} {pid}");
}

/// The children of a process, from the system's table.
fn children_of(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("a table of processes");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| status(pid).is_some_and(|(of, _)| of == parent))
        .collect()
}

/// Whether a process runs: it is there, and not only waits to be waited for.
pub fn runs(pid: u32) -> bool {
    status(pid).is_some_and(|(_, state)| state != 'Z')
}

/// Parent and state of a process.
fn status(pid: u32) -> Option<(u32, char)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in brackets and may hold anything.
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    let state = rest.next()?.chars().next()?;
    Some((rest.next()?.parse().ok()?, state))
}

impl Server {
    /// Starts a server under a limit that the shell sets, and waits until it is ready.
    pub fn start_limited(limit: &str, flags: &[&str]) -> Server {
        let port = free_port();
        let child = Command::new("sh")
            .args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_ropeteam"))
            .args([
                "serve",
                "--port",
                &port.to_string(),
                "--served-name",
                "m",
                "--model",
            ])
            .arg(tiny("llama"))
            .args(flags)
            .spawn()
            .expect("a shell");
        Server::when_ready(child, port, None)
    }

    /// Starts a server for a tiny model and waits until it is ready.
    pub fn start(model: &str, flags: &[&str]) -> Server {
        let model = tiny(model);
        let mut all = vec!["--model", model.to_str().expect("a UTF-8 path")];
        all.extend(flags);
        Server::start_with(&all)
    }

    /// Starts a server with these flags and waits until it is ready.
    pub fn start_with(flags: &[&str]) -> Server {
        Server::start_in(&[], flags)
    }

    /// Starts a server with these environment variables and flags and waits until it is ready.
    pub fn start_in(variables: &[(&str, &str)], flags: &[&str]) -> Server {
        let port = free_port();
        let mut child = ropeteam()
            .envs(variables.iter().copied())
            .args(["serve", "--port", &port.to_string(), "--served-name", "m"])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let errors = child.stderr.take().expect("its stderr");
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                eprintln!("[server {port}] {line}");
            }
        });
        Server::when_ready(child, port, None)
    }

    /// Starts a server with a management port, nobody at the other end of whose standard error listens.
    pub fn start_deaf(model: &str) -> Server {
        let (port, management) = (free_port(), free_port());
        let mut child = ropeteam()
            .args(["serve", "--served-name", "m", "--log-level", "debug"])
            .args(["--port", &port.to_string()])
            .args(["--management-port", &management.to_string()])
            .arg("--model")
            .arg(tiny(model))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        drop(child.stderr.take());
        Server::when_ready(child, port, Some(management))
    }

    fn when_ready(child: Child, port: u16, management: Option<u16>) -> Server {
        let mut server = Server {
            child,
            port,
            management,
        };
        server.wait_ready();
        server
    }

    fn wait_ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.get("/health").map(|a| a.status) != Some(200) {
            if let Some(status) = self.child.try_wait().expect("a child to wait for") {
                panic!("the server ended with {status} before it was ready");
            }
            assert!(Instant::now() < deadline, "the server did not become ready");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn get(&self, path: &str) -> Option<crate::http::Answer> {
        TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        Some(crate::http::get(self.port, path))
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        signal("TERM", self.pid());
    }

    /// The processes of its devices, those included that ended and were not waited for.
    pub fn device_processes(&self) -> Vec<u32> {
        children_of(self.pid())
    }

    /// The process of its only device, once it has one that is not `former`.
    pub fn device_process(&self, former: Option<u32>) -> u32 {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match self.device_processes().as_slice() {
                [pid] if Some(*pid) != former => return *pid,
                found => assert!(Instant::now() < deadline, "device processes: {found:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the process to end.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child to wait for") {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the server did not end within {limit:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The value of a gauge or counter, its label sets added up.
    pub fn metric(&self, name: &str) -> f64 {
        let page = crate::http::get(self.port, "/metrics");
        assert_eq!(page.status, 200, "{}", page.body);
        let values: Vec<f64> = page
            .body
            .lines()
            .filter(|l| {
                l.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with([' ', '{']))
            })
            .map(|l| {
                l.rsplit(' ')
                    .next()
                    .and_then(|v| v.parse().ok())
                    .expect("a number")
            })
            .collect();
        assert!(!values.is_empty(), "no metric {name} in\n{}", page.body);
        values.iter().sum()
    }

    /// Tokens that streams had from decode steps so far, of requests that go on as well.
    pub fn decoded(&self) -> f64 {
        let page = crate::http::get(self.port, "/metrics").body;
        let lines = page.lines().filter(|line| {
            line.starts_with("ropeteam_step_tokens_total{") && line.contains("kind=\"decode\"")
        });
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }

    /// How often a device was started again.
    pub fn restarts(&self) -> f64 {
        let page = crate::http::get(self.port, "/metrics").body;
        // The counter is not there before it counts.
        match page.contains("\nropeteam_device_restarts_total{") {
            true => self.metric("ropeteam_device_restarts_total"),
            false => 0.0,
        }
    }

    /// Waits until the metric has the value; fails after a time that is long even for a busy machine.
    pub fn wait_metric(&self, name: &str, wanted: f64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let value = self.metric(name);
            if value == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{name} is {value}, not {wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
