//! Devices and access between them.

use super::{answer, export};
use crate::entry::{enter, enter_waiting};
use ropeteam_acl_sys::code::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;

export! { acl_rt:
    fn aclrtSetDevice(device: i32) -> i32 {
        enter("aclrtSetDevice", |world, caller| world.set_device(caller, device))
    }

    fn aclrtResetDevice(device: i32) -> i32 {
        enter("aclrtResetDevice", |world, _| world.reset_device(device, false))
    }

    fn aclrtResetDeviceForce(device: i32) -> i32 {
        enter("aclrtResetDeviceForce", |world, _| world.reset_device(device, true))
    }

    fn aclrtGetDevice(device: *mut i32) -> i32 {
        enter("aclrtGetDevice", |world, caller| {
            let (_, context) = world.current(caller)?;
            // SAFETY: the caller's place for a number.
            unsafe { answer(device, context.device as i32) }
        })
    }

    fn aclrtGetDeviceCount(count: *mut u32) -> i32 {
        enter("aclrtGetDeviceCount", |world, _| {
            // SAFETY: the caller's place for a number.
            unsafe { answer(count, world.devices.len() as u32) }
        })
    }

    fn aclrtSynchronizeDevice() -> i32 {
        let call = "aclrtSynchronizeDevice";
        enter_waiting(call, None, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, |world, caller| {
            let device = world.current(caller)?.1.device;
            world.finish_device(device)
        })
    }

    fn aclrtDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> i32 {
        enter("aclrtDeviceCanAccessPeer", |world, _| {
            let reaches = world.can_access_peer(device, peer)?;
            // SAFETY: the caller's place for a number.
            unsafe { answer(can, i32::from(reaches)) }
        })
    }

    fn aclrtDeviceEnablePeerAccess(peer: i32, _flags: u32) -> i32 {
        enter("aclrtDeviceEnablePeerAccess", |world, caller| world.set_peer_access(caller, peer, true))
    }

    fn aclrtDeviceDisablePeerAccess(peer: i32) -> i32 {
        enter("aclrtDeviceDisablePeerAccess", |world, caller| world.set_peer_access(caller, peer, false))
    }
}
