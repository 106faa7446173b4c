//! Driver, device nodes, CANN and the chips.

use super::Finding;
use crate::config::{Config, Quantize};
use ropeteam_ascend::{AclError, NEEDED, NEEDED_BY_INT8, Search, lacking, survey};
use ropeteam_device::Dtype;
use ropeteam_models::{Checkpoint, ModelInfo, families};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Device nodes that every process on a chip opens.
const NODES: [&str; 3] = ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"];
/// Where the driver says its version.
const DRIVER_VERSION: &str = "/usr/local/Ascend/driver/version.info";

pub fn examine(config: &Config, findings: &mut Vec<Finding>) {
    findings.push(driver(Path::new(DRIVER_VERSION)));
    findings.extend(nodes(&present_nodes(Path::new("/dev"))));
    findings.push(visible(
        std::env::var("ASCEND_RT_VISIBLE_DEVICES").ok().as_deref(),
    ));
    match survey(&Search::from_environment()) {
        Err(error) => findings.push(no_cann(&error)),
        Ok(survey) => {
            let version = survey
                .runtime_version
                .unwrap_or_else(|| "of no version".to_owned());
            let libraries: Vec<_> = survey
                .libraries
                .iter()
                .map(|p| p.display().to_string())
                .collect();
            findings.push(Finding::good(
                "CANN",
                format!("runtime interface {version}; {}", libraries.join(", ")),
            ));
            findings.push(operators(&survey.absent, has_int8(config)));
            if survey.npus.is_empty() {
                findings.push(Finding::bad(
                    "chips",
                    "none is visible",
                    "check `npu-smi info`; in a container pass --device /dev/davinci0 and the nodes above; unset \
                     ASCEND_RT_VISIBLE_DEVICES or name devices that exist",
                ));
            }
            for npu in survey.npus {
                findings.push(chip(&npu));
            }
        }
    }
}

fn driver(version: &Path) -> Finding {
    let text = std::fs::read_to_string(version).unwrap_or_default();
    match text.lines().find_map(|line| line.strip_prefix("Version=")) {
        Some(number) => Finding::good("driver", number),
        None => Finding::doubtful(
            "driver",
            format!("{} does not say a version", version.display()),
            "install the NPU driver and firmware on the host; in a container mount /usr/local/Ascend/driver and /usr/local/dcmi",
        ),
    }
}

/// The nodes of all processes, and those of single chips that are there.
fn present_nodes(dev: &Path) -> Vec<PathBuf> {
    let mut nodes: Vec<PathBuf> = NODES.iter().map(PathBuf::from).collect();
    let entries = std::fs::read_dir(dev).into_iter().flatten().flatten();
    let mut chips: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let number = name.strip_prefix("davinci").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
        .collect();
    chips.sort();
    nodes.extend(chips);
    nodes
}

fn nodes(paths: &[PathBuf]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fine = Vec::new();
    for path in paths {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(_) => fine.push(path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                findings.push(Finding::bad(
                    "device nodes",
                    format!("{} may not be opened", path.display()),
                    "add the user to the group of the driver (usermod -aG HwHiAiUser NAME) and log in again",
                ));
            }
            // A node that is in use elsewhere is there and permitted.
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                fine.push(path.display().to_string());
            }
            Err(error) => findings.push(Finding::bad(
                "device nodes",
                format!("{}: {error}", path.display()),
                "load the driver (npu-smi info must list the chip); in a container pass the node with --device",
            )),
        }
    }
    if !fine.is_empty() {
        findings.push(Finding::good("device nodes", fine.join(", ")));
    }
    findings
}

fn visible(list: Option<&str>) -> Finding {
    let about = "visible devices";
    let Some(list) = list else {
        return Finding::good(about, "all (ASCEND_RT_VISIBLE_DEVICES is not set)");
    };
    let numbers: Option<Vec<u32>> = list
        .split(',')
        .map(|word| word.trim().parse().ok())
        .collect();
    let ascends = |numbers: &[u32]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
    match numbers {
        Some(numbers) if ascends(&numbers) => Finding::good(
            about,
            format!("{list} of the machine, numbered from 0 here"),
        ),
        _ => Finding::bad(
            about,
            format!(
                "ASCEND_RT_VISIBLE_DEVICES={list} does not ascend, or names no numbers; the driver stops at the first wrong entry"
            ),
            "write numbers in ascending order, each once: ASCEND_RT_VISIBLE_DEVICES=0,2",
        ),
    }
}

fn no_cann(error: &AclError) -> Finding {
    let remedy = match error {
        AclError::Load(_) => {
            "install CANN (toolkit or nnrt, and the operator package of the chip) and run `source set_env.sh` in its folder before \
             ropeteam, or set LD_LIBRARY_PATH to its lib64"
        }
        _ => {
            "check `npu-smi info` and the driver's log (dmesg, /var/log/npu); driver and CANN must be of versions that go together"
        }
    };
    Finding::bad("CANN", error.to_string(), remedy)
}

/// Whether the model has weights that stay in int8. What is wrong with its files is found out elsewhere.
fn has_int8(config: &Config) -> bool {
    let model = &config.model_config;
    let path = Path::new(&model.model);
    if model.quantize != Quantize::Auto || !path.exists() {
        return false;
    }
    let Ok(checkpoint) = Checkpoint::open(path) else {
        return false;
    };
    let info =
        families::spec(checkpoint.config()).and_then(|spec| ModelInfo::gather(&checkpoint, &spec));
    info.is_ok_and(|info| info.elements.iter().any(|(dtype, _)| *dtype == Dtype::I8))
}

fn operators(absent: &[&'static str], int8: bool) -> Finding {
    let about = "operators";
    let remedy = "install CANN 8.3 or later with the operator package (ops, kernels) of the chip";
    let needed = lacking(absent, int8);
    if !needed.is_empty() {
        let found = format!("the installed CANN lacks {}", needed.join(", "));
        return Finding::bad(about, found, remedy);
    }
    let by_int8 = lacking(absent, true);
    if !by_int8.is_empty() {
        let found = format!(
            "the installed CANN lacks {}, which models in int8 need; this one does not",
            by_int8.join(", ")
        );
        return Finding::doubtful(about, found, remedy);
    }
    let count = NEEDED.len() + NEEDED_BY_INT8.len();
    Finding::good(about, format!("all {count} are there"))
}

fn chip(npu: &ropeteam_ascend::Npu) -> Finding {
    let about = "chips";
    let (number, name) = (npu.number, &npu.name);
    match (&npu.memory, npu.health) {
        (Err(error), _) => Finding::bad(
            about,
            format!("{number}: {name}: {error}"),
            "stop what uses the chip and reset it: npu-smi set -t reset -i ID -c CHIP (as root)",
        ),
        (Ok(_), Some(health)) if health.0 > 1 => Finding::bad(
            about,
            format!("{number}: {name}: {health}"),
            "npu-smi info -t health -i ID names the error; move the work to another chip and reset or replace this one",
        ),
        (Ok((free, total)), health) => {
            let health = health.map_or("health not told".to_owned(), |health| health.to_string());
            let (free, total) = (super::machine::gib(*free), super::machine::gib(*total));
            Finding::good(
                about,
                format!("{number}: {name}, {free} of {total} free, {health}"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn a_list_of_devices_must_ascend() {
        let level = |list| visible(list).level;
        assert_eq!(level(None), Level::Good);
        assert_eq!(level(Some("0,2,3")), Level::Good);
        assert_eq!(level(Some("2,1")), Level::Bad);
        assert_eq!(level(Some("0,x")), Level::Bad);
        assert_eq!(level(Some("")), Level::Bad);
    }

    #[test]
    fn nodes_of_chips_are_told_from_others() {
        let dev = tempfile::tempdir().expect("a folder");
        for name in ["davinci0", "davinci10", "davinci_manager", "null"] {
            std::fs::write(dev.path().join(name), "").expect("a file");
        }
        let found = present_nodes(dev.path());
        assert_eq!(found.len(), NODES.len() + 2);
        let missing = nodes(&[dev.path().join("davinci7")]);
        assert_eq!(missing[0].level, Level::Bad);
        assert!(missing[0].remedy.contains("driver"), "{missing:?}");
    }

    #[test]
    fn lacking_operators_are_named() {
        let finding = operators(&["aclnnScatterPaKvCache", "aclrtIpcMemClose"], false);
        assert_eq!(finding.level, Level::Bad);
        assert!(
            finding.found.ends_with("lacks aclnnScatterPaKvCache"),
            "{finding:?}"
        );
        let wait = "aclrtSynchronizeEventWithTimeout";
        assert_eq!(operators(&[wait], false).level, Level::Bad);
        let quant = &["aclnnQuantMatmulV4"];
        assert_eq!(operators(quant, false).level, Level::Doubtful);
        assert_eq!(operators(quant, true).level, Level::Bad);
        assert_eq!(operators(&["aclnnTopk"], true).level, Level::Good);
    }
}
