//! Every code of AscendCL as a value: which call, which code, its name, the library's own words, and what it took with it.

use ropeteam_acl_sys::{Absent, Acl, LoadError, code};
use ropeteam_device::{Damage, DeviceError};
use std::ffi::CStr;

/// A call did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// CANN is not installed, or not where it is looked for.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The installed CANN is too old, or an operator package is missing.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// The machine has something else than is needed.
    #[error("{0}")]
    Unfit(String),
    /// The call answered a code.
    #[error("{call} failed with code {code} ({}): {text}", name(*.code))]
    Code {
        /// The function.
        call: &'static str,
        /// Its answer.
        code: i32,
        /// What the library says about it.
        text: String,
    },
}

/// Calls a function of a table: `call!(acl, runtime.aclrtMalloc(&mut address, 64, policy))`.
macro_rules! call {
    ($acl:expr, $table:ident . $name:ident ( $($argument:expr),* $(,)? )) => {
        $crate::error::check($acl, stringify!($name), {
            // SAFETY: handles are alive because their owners are borrowed or owned here, addresses come from their allocator, and
            // the session keeps the thread's context current.
            unsafe { $acl.$table.$name($($argument),*) }
        })
    };
}

/// The official name of a code.
pub fn name(code: i32) -> &'static str {
    code::name(code).unwrap_or("no name known")
}

/// Success, or the code with the thread's last message.
pub fn check(acl: &Acl, call: &'static str, answer: Result<i32, Absent>) -> Result<(), AclError> {
    match answer? {
        code::ACL_SUCCESS => Ok(()),
        code => Err(AclError::Code {
            call,
            code,
            text: last_message(acl),
        }),
    }
}

/// What the library says about this thread's last failure.
fn last_message(acl: &Acl) -> String {
    // SAFETY: the call takes nothing.
    let text = unsafe { acl.runtime.aclGetRecentErrMsg() };
    match text {
        Ok(text) if !text.is_null() => {
            // SAFETY: a string that is valid until the next call of this thread.
            let text = unsafe { CStr::from_ptr(text) };
            text.to_string_lossy().trim().to_owned()
        }
        _ => "the library says nothing".to_owned(),
    }
}

impl AclError {
    /// The code, where there is one.
    pub fn code(&self) -> Option<i32> {
        match self {
            AclError::Code { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// What a code took with it. Arguments that were refused leave the device as it was; an error of the chip, its memory or its links
/// costs what the device holds; where the driver itself gave up, this process has lost it.
pub fn damage(code: i32) -> Damage {
    use code::*;
    match code {
        ACL_ERROR_UNINITIALIZE
        | ACL_ERROR_REPEAT_FINALIZE
        | ACL_ERROR_COMPILING_STUB_MODE
        | ACL_ERROR_DRV_FAILURE
        | ACL_ERROR_RT_LOST_HEARTBEAT
        | ACL_ERROR_RT_DEV_SETUP_ERROR
        | ACL_ERROR_RT_DRV_INTERNAL_ERROR
        | ACL_ERROR_RT_SOCKET_CLOSE => Damage::Process,
        // Aborted by request, or what was captured or prepared is no longer what it was.
        ACL_ERROR_RT_DEVICE_TASK_ABORT | ACL_ERROR_RT_STREAM_ABORT => Damage::Device,
        100_000..=199_999 | 200_000..=299_999 | 560_000..=569_999 => Damage::Call,
        _ => Damage::Device,
    }
}

impl From<AclError> for DeviceError {
    fn from(error: AclError) -> Self {
        match error {
            AclError::Code { call, code, text } => DeviceError::Op {
                op: call,
                code: code.into(),
                name: name(code),
                text: advised(code, text),
                damage: damage(code),
            },
            other => DeviceError::Unavailable(other.to_string()),
        }
    }
}

/// The text, with what an operator of the machine can do where this process can do nothing.
fn advised(code: i32, text: String) -> String {
    match damage(code) {
        Damage::Process => format!(
            "{text}; if a new process does not help, stop what uses the chip and reset it: npu-smi set -t reset -i ID -c CHIP (as root)"
        ),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart_by_what_they_took() {
        let check = |code, expected| assert_eq!(damage(code), expected, "{code}");
        check(161002, Damage::Call);
        check(561002, Damage::Call);
        check(207001, Damage::Call);
        check(107003, Damage::Call);
        check(507015, Damage::Device);
        check(507054, Damage::Device);
        check(507046, Damage::Device);
        check(107022, Damage::Device);
        check(507010, Damage::Process);
        check(507899, Damage::Process);
    }

    #[test]
    fn an_error_names_call_code_and_words() {
        let error = AclError::Code {
            call: "aclnnMatmul",
            code: 507015,
            text: "core 3".to_owned(),
        };
        let text = DeviceError::from(error).to_string();
        assert_eq!(
            text,
            "aclnnMatmul failed with code 507015 (ACL_ERROR_RT_AICORE_EXCEPTION): core 3"
        );
        let lost = AclError::Code {
            call: "aclrtSetDevice",
            code: 507899,
            text: "driver".to_owned(),
        };
        assert!(DeviceError::from(lost).to_string().contains("npu-smi"));
    }
}
