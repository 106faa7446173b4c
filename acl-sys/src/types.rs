//! Types and constants shared by all headers (acl_base.h, acl_rt.h, acl_mdl.h and acl_meta.h of CANN 8.x and 9.x).

use std::ffi::c_void;

/// Result of a runtime call; 0 is success.
pub type aclError = i32;
/// Result of an aclnn call; 0 is success.
pub type aclnnStatus = i32;

/// Declares handles: pointers that only the library looks behind.
macro_rules! handles {
    ( $( $(#[$doc:meta])* $name:ident; )* ) => {
        $(
            $(#[$doc])*
            #[repr(transparent)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub struct $name(pub *mut c_void);

            impl $name {
                /// No handle.
                pub const NULL: Self = Self(std::ptr::null_mut());
            }
        )*
    };
}

handles! {
    /// A queue of tasks of one device.
    aclrtStream;
    /// A device as one or more threads see it.
    aclrtContext;
    /// A mark in a stream.
    aclrtEvent;
    /// A captured graph.
    aclmdlRI;
    /// Tasks of a captured graph whose arguments may change.
    aclrtTaskGrp;
}

/// Declares objects that exist behind pointers only.
macro_rules! opaque {
    ( $( $(#[$doc:meta])* $name:ident; )* ) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            pub struct $name {
                _opaque: [u8; 0],
            }
        )*
    };
}

opaque! {
    /// Shape, strides, type and address of a tensor on a device.
    aclTensor;
    /// One number on the host.
    aclScalar;
    /// Integers on the host.
    aclIntArray;
    /// Several tensors.
    aclTensorList;
    /// An operator with its arguments, ready to be launched.
    aclOpExecutor;
}

declare_enums! {
    /// Type of an element.
    aclDataType {
        ACL_DT_UNDEFINED = -1, ACL_FLOAT = 0, ACL_FLOAT16 = 1, ACL_INT8 = 2, ACL_INT32 = 3, ACL_UINT8 = 4, ACL_INT16 = 6,
        ACL_UINT16 = 7, ACL_UINT32 = 8, ACL_INT64 = 9, ACL_UINT64 = 10, ACL_DOUBLE = 11, ACL_BOOL = 12, ACL_BF16 = 27,
        ACL_INT4 = 29,
    }
    /// Layout of a tensor.
    aclFormat {
        ACL_FORMAT_UNDEFINED = -1, ACL_FORMAT_NCHW = 0, ACL_FORMAT_NHWC = 1, ACL_FORMAT_ND = 2, ACL_FORMAT_FRACTAL_NZ = 29,
    }
    /// Which pages device memory is made of.
    aclrtMemMallocPolicy {
        ACL_MEM_MALLOC_HUGE_FIRST = 0, ACL_MEM_MALLOC_HUGE_ONLY = 1, ACL_MEM_MALLOC_NORMAL_ONLY = 2,
        ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3, ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4, ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
    }
    /// Direction of a copy.
    aclrtMemcpyKind {
        ACL_MEMCPY_HOST_TO_HOST = 0, ACL_MEMCPY_HOST_TO_DEVICE = 1, ACL_MEMCPY_DEVICE_TO_HOST = 2,
        ACL_MEMCPY_DEVICE_TO_DEVICE = 3, ACL_MEMCPY_DEFAULT = 4,
    }
    /// Kind of memory to ask about.
    aclrtMemAttr {
        ACL_DDR_MEM = 0, ACL_HBM_MEM = 1, ACL_DDR_MEM_HUGE = 2, ACL_DDR_MEM_NORMAL = 3, ACL_HBM_MEM_HUGE = 4,
        ACL_HBM_MEM_NORMAL = 5,
    }
    /// Whether an event's record was passed.
    aclrtEventRecordedStatus {
        ACL_EVENT_RECORDED_STATUS_NOT_READY = 0, ACL_EVENT_RECORDED_STATUS_COMPLETE = 1,
    }
    /// Whether a stream's tasks are done.
    aclrtStreamStatus {
        ACL_STREAM_STATUS_COMPLETE = 0, ACL_STREAM_STATUS_NOT_READY = 1,
    }
    /// Which calls a capture forbids, and to whom.
    aclmdlRICaptureMode {
        ACL_MODEL_RI_CAPTURE_MODE_GLOBAL = 0, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL = 1, ACL_MODEL_RI_CAPTURE_MODE_RELAXED = 2,
    }
    /// How a stream's capture stands.
    aclmdlRICaptureStatus {
        ACL_MODEL_RI_CAPTURE_STATUS_NONE = 0, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE = 1,
        ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED = 2,
    }
}

declare_numbers! {
    /// Flags of events and streams.
    FLAGS: u32 {
        ACL_EVENT_SYNC = 0x01,
        ACL_EVENT_CAPTURE_STREAM_PROGRESS = 0x02,
        ACL_EVENT_TIME_LINE = 0x08,
        ACL_EVENT_EXTERNAL = 0x20,
        ACL_STREAM_FAST_LAUNCH = 0x01,
        ACL_STREAM_FAST_SYNC = 0x02,
        ACL_STREAM_PERSISTENT = 0x04,
    }
}

/// A stream stops after a failed task instead of going on with the next; for `aclrtSetStreamFailureMode`.
pub const ACL_STOP_ON_FAILURE: u64 = 1;

impl aclDataType {
    /// Bytes of one element; `None` where an element is no whole number of bytes or the type is unknown.
    pub fn bytes(self) -> Option<usize> {
        match self {
            ACL_INT8 | ACL_UINT8 | ACL_BOOL => Some(1),
            ACL_FLOAT16 | ACL_BF16 | ACL_INT16 | ACL_UINT16 => Some(2),
            ACL_FLOAT | ACL_INT32 | ACL_UINT32 => Some(4),
            ACL_INT64 | ACL_UINT64 | ACL_DOUBLE => Some(8),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_has_the_bytes_of_its_type() {
        assert_eq!(ACL_BF16.bytes(), Some(2));
        assert_eq!(ACL_INT64.bytes(), Some(8));
        assert_eq!(ACL_INT4.bytes(), None, "two to a byte");
        assert_eq!(aclDataType(999).bytes(), None);
    }
}
