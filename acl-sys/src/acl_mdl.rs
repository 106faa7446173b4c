//! Capturing a stream's tasks as a graph and running it again (acl_mdl.h; acl_rt.h in CANN 9.x), in `libascendcl.so`.

use crate::types::*;

declare_functions! {
    /// The functions of captured graphs.
    Graphs {
        /// Tasks of the stream are recorded from here on instead of run.
        fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError;
        /// How the stream's capture stands.
        fn aclmdlRICaptureGetInfo(stream: aclrtStream, status: *mut aclmdlRICaptureStatus, graph: *mut aclmdlRI) -> aclError;
        /// Ends a capture and hands out its graph.
        fn aclmdlRICaptureEnd(stream: aclrtStream, graph: *mut aclmdlRI) -> aclError;
        /// Runs a graph in stream order, with the addresses and numbers that were captured.
        fn aclmdlRIExecuteAsync(graph: aclmdlRI, stream: aclrtStream) -> aclError;
        /// Ends a graph.
        fn aclmdlRIDestroy(graph: aclmdlRI) -> aclError;
        /// Tasks from here on form a group that can be updated.
        fn aclmdlRICaptureTaskGrpBegin(stream: aclrtStream) -> aclError;
        /// Ends the group.
        fn aclmdlRICaptureTaskGrpEnd(stream: aclrtStream, group: *mut aclrtTaskGrp) -> aclError;
        /// Tasks from here on replace those of the group, one by one.
        fn aclmdlRICaptureTaskUpdateBegin(stream: aclrtStream, group: aclrtTaskGrp) -> aclError;
        /// Ends the update.
        fn aclmdlRICaptureTaskUpdateEnd(stream: aclrtStream) -> aclError;
    }
}
