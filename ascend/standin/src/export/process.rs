//! Start, end, versions and messages.

use super::{answer, export};
use crate::entry::{enter, take_message, world};
use std::ffi::c_char;

/// Version of the runtime's interface that is offered.
const VERSION: (i32, i32, i32) = (1, 15, 0);

export! { acl_rt:
    fn aclInit(_config_path: *const c_char) -> i32 {
        enter("aclInit", |world, _| world.init())
    }

    fn aclFinalize() -> i32 {
        enter("aclFinalize", |world, _| world.finalize())
    }

    fn aclGetRecentErrMsg() -> *const c_char {
        take_message()
    }

    fn aclrtGetSocName() -> *const c_char {
        match world().settings.is_310p() {
            true => c"Ascend310P3".as_ptr(),
            false => c"Ascend910B3".as_ptr(),
        }
    }

    fn aclrtGetVersion(major: *mut i32, minor: *mut i32, patch: *mut i32) -> i32 {
        enter("aclrtGetVersion", |_, _| {
            // SAFETY: the caller's places for three numbers.
            unsafe {
                answer(major, VERSION.0)?;
                answer(minor, VERSION.1)?;
                answer(patch, VERSION.2)
            }
        })
    }
}
