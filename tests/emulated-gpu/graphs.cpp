// The driver's functions about graphs.

#include "graphs.h"

#include "counts.h"

#include <cstdio>
#include <cstdlib>
#include <list>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct CUgraphNode_st {
    std::function<void()> work;
};
struct CUgraph_st {
    std::list<CUgraphNode_st> nodes;
};
struct CUgraphExec_st {
    std::list<CUgraphNode_st> nodes;
};

namespace {
// The stream of this thread that records.
thread_local CUstream recording;
} // namespace

void enqueue(CUstream stream, std::function<void()> work) {
    if (stream == nullptr || stream->graph == nullptr) return do_in_order(stream, std::move(work));
    if (stream != recording) {
        std::fprintf(stderr, "emulated GPU: a thread works on a stream that another one records\n");
        std::abort();
    }
    stream->graph->nodes.push_back({std::move(work)});
}

void refuse_while_recording(const char *what) {
    if (recording == nullptr) return;
    std::fprintf(stderr, "emulated GPU: %s while a stream records\n", what);
    std::abort();
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
    if (stream == nullptr || stream->graph != nullptr || recording != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    stream->graph = new CUgraph_st;
    recording = stream;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    if (stream == nullptr || stream->graph == nullptr || recording != stream) return CUDA_ERROR_ILLEGAL_STATE;
    *graph = stream->graph;
    stream->graph = nullptr;
    recording = nullptr;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    const bool records = stream != nullptr && stream->graph != nullptr;
    return *status = records ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, std::size_t *count) {
    if (nodes != nullptr) {
        std::size_t place = 0;
        for (CUgraphNode_st &node : graph->nodes)
            if (place < *count) nodes[place++] = &node;
    }
    return *count = graph->nodes.size(), CUDA_SUCCESS;
}
EXPORT CUresult cuGraphNodeGetType(CUgraphNode, CUgraphNodeType *type) { return *type = CU_GRAPH_NODE_TYPE_KERNEL, CUDA_SUCCESS; }
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long) {
    return *out = new CUgraphExec_st{graph->nodes}, CUDA_SUCCESS;
}
EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    refuse_while_recording("a graph is launched");
    count_call("launch a graph", 0);
    do_in_order(stream, [graph] {
        for (const CUgraphNode_st &node : graph->nodes) node.work();
    });
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph) { return catch_up_all(), delete graph, CUDA_SUCCESS; }
EXPORT CUresult cuGraphDestroy(CUgraph graph) { return delete graph, CUDA_SUCCESS; }
