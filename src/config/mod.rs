//! The configuration: what can be set (`options`), read from a file (`file`, or
//! MindIE's own: `mindie`), and which setting wins (`resolve`).

mod error;
mod file;
mod kind;
mod live;
mod mindie;
mod options;
mod origin;
mod resolve;
mod show;
mod strict_json;
pub mod tenants;
mod words;

pub use error::{ConfigError, Place};
pub use kind::{Kind, MemoryBudget};
pub use live::LIVE;
pub use mindie::Note;
pub use options::{
    Config, DebugConfig, DebugFault, Dtype, Isolation, KvDtype, LogFormat, LogLevel, LogRequests,
    ModelConfig, NOT_OFFERED, OPTIONS, OptionSpec, PoolingChoice, Quantize, ReasoningParser,
    ServerConfig, SimulatedTime, Speculate, TgiVersion, ToolParser,
};
pub use origin::Origin;
pub use resolve::{Inputs, Resolved, Setting, resolve};
pub use show::{reference, to_json, to_text};

/// Checks a configuration file by itself. Returns what became of each field, if it is one of MindIE's.
///
/// # Errors
/// The first thing wrong with it.
pub fn check_file(path: &std::path::Path) -> Result<Vec<Note>, ConfigError> {
    resolve(Inputs {
        file: Some(path.to_owned()),
        ..Inputs::default()
    })
    .map(|resolved| resolved.notes)
}
