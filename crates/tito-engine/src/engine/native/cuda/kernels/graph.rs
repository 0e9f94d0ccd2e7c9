//! Work that is recorded once, and then launched as a whole.

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
};

use candle_core::{
    Device, Result, bail,
    cuda_backend::{
        WrapErr,
        cudarc::{
            cublas,
            driver::{
                CudaGraph, DevicePtr,
                sys::{
                    CUgraph, CUgraphInstantiate_flags, CUgraphNode, CUgraphNodeType, CUstreamCaptureMode,
                    cuGraphGetNodes, cuGraphNodeGetType,
                },
            },
        },
    },
};

use super::super::buffer::Allocations;
use crate::files::panic_text;

/// Memory that products work in. Without any of its own, cuBLAS may allocate some in the midst of what is recorded.
const WORKSPACE_BYTES: usize = 32 << 20;

/// Launches that were recorded. They name memory by its address, so they are void once any was allocated anew.
pub(in super::super) struct Graph {
    launches: CudaGraph,
    allocations: Allocations,
    /// How much had been allocated when they were recorded.
    allocated: u64,
}

// SAFETY: a graph may be used by any thread, by one at a time, and it is never shared: nothing takes a reference to one from
// another thread, as it is not `Sync`.
unsafe impl Send for Graph {}

impl Graph {
    /// Has the device do it all.
    pub(in super::super) fn launch(&self) -> Result<()> {
        if self.allocations.so_far() != self.allocated {
            bail!("memory was allocated anew since a step was recorded");
        }
        // Weights, caches and buffers are where they were: what takes the place of another is allocated, and all of that is counted.
        self.launches.launch().w()
    }
}

/// Records what `work` launches on the device's stream, without doing it. `None` if there was anything else than kernels, such
/// as a copy, which would be done again with the memory of this time.
///
/// Nobody else works on that stream, and `work` does not wait for the device.
pub(in super::super) fn record(
    device: &Device,
    allocations: &Allocations,
    work: impl FnOnce(),
) -> Result<Option<Graph>> {
    let allocated = allocations.so_far();
    let stream = device.as_cuda_device()?.cuda_stream();
    // Calls of other threads are of no concern: they have streams of their own.
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).w()?;
    // What the driver refuses while it records panics. The recording ends in any case: nothing else can be done before.
    let worked = catch_unwind(AssertUnwindSafe(work));
    let ended = stream.end_capture(CUgraphInstantiate_flags(0));
    if let Err(panic) = worked {
        bail!("{}", panic_text(&*panic));
    }
    let Some(graph) = ended.w()? else { return Ok(None) };
    let is_whole = has_only_kernels(graph.cu_graph())?;
    Ok(is_whole.then(|| Graph { launches: graph, allocations: allocations.clone(), allocated }))
}

/// Whether all nodes are kernels, or set memory as some of cuBLAS's do.
fn has_only_kernels(graph: CUgraph) -> Result<bool> {
    // SAFETY: the graph is there; asked with no room, the first call tells how many nodes it has, and the second writes as many.
    let nodes = unsafe {
        let mut count = 0;
        cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count).result().w()?;
        let mut nodes: Vec<CUgraphNode> = vec![std::ptr::null_mut(); count];
        cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count).result().w()?;
        nodes
    };
    for node in nodes {
        let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: the graph has the node.
        unsafe { cuGraphNodeGetType(node, &raw mut kind) }.result().w()?;
        if !matches!(kind, CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL | CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives cuBLAS memory to work in, as long as the device is open.
pub(in super::super) fn give_workspace(device: &Device) -> Result<()> {
    let device = device.as_cuda_device()?;
    let (stream, blas) = (device.cuda_stream(), device.cublas_handle());
    // SAFETY: cuBLAS writes what it reads there.
    let workspace = unsafe { stream.alloc::<u8>(WORKSPACE_BYTES) }.w()?;
    let address = workspace.device_ptr(&stream).0 as *mut c_void;
    // SAFETY: the handle is that of the device, and the memory is of that size and never freed.
    let given = unsafe { cublas::sys::cublasSetWorkspace_v2(*blas.handle(), address, WORKSPACE_BYTES) };
    given.result().w()?;
    std::mem::forget(workspace);
    Ok(())
}
