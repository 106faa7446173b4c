//! Access from one device to another's memory: one way, and only where it was enabled.

use super::World;
use crate::caller::Caller;
use crate::fail::{Fail, mistake};
use ropeteam_acl_sys::code::*;

impl World {
    /// `aclrtDeviceCanAccessPeer`: all devices of the machine reach each other.
    pub fn can_access_peer(&self, device: i32, peer: i32) -> Result<bool, Fail> {
        let (device, peer) = (self.device_number(device)?, self.device_number(peer)?);
        Ok(device != peer)
    }

    /// `aclrtDeviceEnablePeerAccess`, and without `enable` the opposite.
    pub fn set_peer_access(
        &mut self,
        caller: &Caller,
        peer: i32,
        enable: bool,
    ) -> Result<(), Fail> {
        let own = self.current(caller)?.1.device;
        let peer = self.device_number(peer)?;
        if own == peer {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                "a device is no peer of its own",
            ));
        }
        let pair = (self.devices[own].physical, self.devices[peer].physical);
        match enable {
            true => self.peers.insert(pair),
            false => self.peers.remove(&pair),
        };
        Ok(())
    }
}
