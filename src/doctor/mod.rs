//! What `ropeteam doctor` looks at: everything that keeps a server from starting or serving well, each finding with its remedy.
//! Nothing is changed. A check that needs what another one found missing is left out.

mod machine;
mod model;
mod npu;

use crate::config::Config;

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, but not as well as it could, or not under all circumstances.
    Doubtful,
    /// Serving fails over it.
    Bad,
}

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it stands.
    pub level: Level,
    /// Which thing, in one or two words.
    pub about: &'static str,
    /// What was found.
    pub found: String,
    /// What to do; empty where it is good.
    pub remedy: String,
}

impl Finding {
    fn good(about: &'static str, found: impl Into<String>) -> Self {
        Self {
            level: Level::Good,
            about,
            found: found.into(),
            remedy: String::new(),
        }
    }

    fn doubtful(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Doubtful,
            about,
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    fn bad(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Bad,
            ..Self::doubtful(about, found, remedy)
        }
    }
}

/// Looks at everything that a server with this configuration needs.
pub fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let on_npu = config.model_config.device.starts_with("ascend")
        || config.model_config.device.starts_with("npu");
    if on_npu {
        npu::examine(config, &mut findings);
    }
    let device_stands = findings.iter().all(|f| f.level != Level::Bad);
    machine::examine(config, &mut findings);
    model::examine(config, device_stands, &mut findings);
    findings
}

/// The findings, one or two lines each, and how many of which kind.
pub fn report(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.level {
            Level::Good => "ok      ",
            Level::Doubtful => "warning ",
            Level::Bad => "problem ",
        };
        text.push_str(&format!("{mark} {}: {}\n", finding.about, finding.found));
        if !finding.remedy.is_empty() {
            text.push_str(&format!("          do: {}\n", finding.remedy));
        }
    }
    let count = |level| findings.iter().filter(|f| f.level == level).count();
    let (bad, doubtful) = (count(Level::Bad), count(Level::Doubtful));
    text.push_str(&format!("{bad} problems, {doubtful} warnings\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_that_is_not_good_says_what_to_do() {
        let findings = [
            Finding::good("ports", "1025 is free"),
            Finding::bad("driver", "no /dev/davinci_manager", "install the driver"),
        ];
        assert_eq!(
            report(&findings),
            "ok       ports: 1025 is free\nproblem  driver: no /dev/davinci_manager\n          do: install the driver\n\
             1 problems, 0 warnings\n"
        );
    }
}
