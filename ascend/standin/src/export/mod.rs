//! The exported C functions: each takes its arguments apart and hands them to the world. None has a rule of its own.

mod contexts;
mod control;
mod copies;
mod devices;
mod events;
mod graphs;
mod meta;
mod operators;
mod others;
mod process;
mod storage;
mod streams;

use crate::fail::{Fail, mistake};
use ropeteam_acl_sys::code::ACL_ERROR_INVALID_PARAM;

/// Writes to where the caller wants an answer.
///
/// # Safety
/// `to` is null or the caller's own place for one `T`.
unsafe fn answer<T>(to: *mut T, value: T) -> Result<(), Fail> {
    if to.is_null() {
        return Err(mistake(
            ACL_ERROR_INVALID_PARAM,
            "a null place for the answer",
        ));
    }
    // SAFETY: not null, and the caller's own.
    unsafe { to.write(value) };
    Ok(())
}

/// Exports functions whose types are those that `acl-sys` declares; that they are is checked when this compiles.
macro_rules! export {
    ($table:ident: $(
        fn $name:ident($($parameter:ident: $type:ty),* $(,)?) -> $returns:ty $body:block
    )*) => { $(
        #[doc = concat!("`", stringify!($name), "` of the official interface.")]
        ///
        /// # Safety
        /// As the official documentation asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> $returns $body

        const _: ropeteam_acl_sys::$table::pointer::$name = $name;
    )* };
}
use export;
