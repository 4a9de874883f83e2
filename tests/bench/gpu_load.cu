// A program that uses the GPU beside a server. It computes, or copies in both directions, and
// prints its rate; or it allocates memory. `compare.py --cells neighbour` measures its loss of
// speed while a server uses the same GPU.
//
// usage: gpu_load compute|copy [ORDINAL]
//        gpu_load take ORDINAL MIB BLOCKS MILLISECONDS
// Prints a line for each tenth of a second: CLOCK_MONOTONIC at its end in seconds, its length in
// seconds, and its rate in TFLOP/s or GB/s. Ends when standard output is closed, or by a signal.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr int blocks_per_processor = 8;
constexpr int threads = 256;
constexpr int chains = 8;     // independent sums of each thread
constexpr int turns = 16384;  // about 2 ms on one H200, as a large matrix product
constexpr int ahead = 4;      // launches queued
constexpr std::size_t copy_bytes = 64 << 20;
constexpr double window = 0.1;  // seconds

__global__ void multiply_add(float* out, float factor) {
    float sums[chains];
    for (int i = 0; i < chains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
    for (int turn = 0; turn < turns; ++turn) {
        for (int i = 0; i < chains; ++i) sums[i] = fmaf(sums[i], factor, 1.0f);
    }
    float sum = 0;
    for (int i = 0; i < chains; ++i) sum += sums[i];
    if (sum == 0.125f) *out = sum;  // prevents the compiler from removing the computation
}

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "gpu_load: %s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

double now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
}

// `work` queues this number of units at a time (1e12 operations, or 1e9 bytes).
template <class Work>
void run(double units, Work work) {
    cudaEvent_t ended[ahead];
    for (cudaEvent_t& event : ended) {
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    }
    double begin = now();
    std::uint64_t done = 0;
    for (std::uint64_t queued = 0;; ++queued) {
        if (queued >= ahead) {
            check(cudaEventSynchronize(ended[queued % ahead]), "the work failed");
            ++done;
            if (const double end = now(); end - begin >= window) {
                const double seconds = end - begin;
                if (std::printf("%.6f %.6f %.6g\n", end, seconds,
                                static_cast<double>(done) * units / seconds) < 0 ||
                    std::fflush(stdout) != 0) {
                    return;
                }
                begin = end;
                done = 0;
            }
        }
        work();
        check(cudaEventRecord(ended[queued % ahead]), "an event");
    }
}

void compute(int ordinal) {
    int processors = 0;
    check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal), "the GPU");
    float* out = nullptr;
    check(cudaMalloc(&out, sizeof *out), "memory");
    const int blocks = processors * blocks_per_processor;
    run(2e-12 * turns * chains * threads * blocks, [&] {
        multiply_add<<<blocks, threads>>>(out, 0.999f);
        check(cudaGetLastError(), "a launch");
    });
}

void copy() {
    void* device[2] = {};
    void* host[2] = {};
    cudaStream_t streams[2] = {};
    for (int i = 0; i < 2; ++i) {
        check(cudaMalloc(&device[i], copy_bytes), "memory");
        check(cudaMallocHost(&host[i], copy_bytes), "pinned memory");
        check(cudaStreamCreate(&streams[i]), "a stream");
    }
    // Blocking streams: the event in the default stream completes after both copies.
    run(2e-9 * copy_bytes, [&] {
        check(cudaMemcpyAsync(device[0], host[0], copy_bytes, cudaMemcpyHostToDevice, streams[0]),
              "a copy");
        check(cudaMemcpyAsync(host[1], device[1], copy_bytes, cudaMemcpyDeviceToHost, streams[1]),
              "a copy");
    });
}

// Allocates blocks with pauses between them, and prints the free memory before each and the
// duration of its allocation in milliseconds. Holds them until standard input ends. Returns the
// exit status.
int take(std::size_t mib, int blocks, int pause) {
    constexpr std::size_t bytes_of_mib = 1 << 20;
    for (int i = 0; i != blocks; ++i) {
        std::size_t free = 0;
        std::size_t total = 0;
        check(cudaMemGetInfo(&free, &total), "the free memory");
        void* block = nullptr;
        const double begin = now();
        const cudaError_t error = cudaMalloc(&block, mib * bytes_of_mib);
        const double taken = now() - begin;
        if (error == cudaSuccess) check(cudaMemset(block, 0xa5, mib * bytes_of_mib), "a write");
        std::printf("%d %s free %zu ms %.2f\n", i, error == cudaSuccess ? "ok" : "FAILED",
                    free / bytes_of_mib, taken * 1e3);
        std::fflush(stdout);
        if (error != cudaSuccess) return 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    }
    std::printf("ready\n");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const char* const what = argc > 1 ? argv[1] : "";
    const int ordinal = argc > 2 ? std::atoi(argv[2]) : 0;
    const bool computes = std::strcmp(what, "compute") == 0;
    if (argc == 6 && std::strcmp(what, "take") == 0) {
        check(cudaSetDevice(ordinal), "the GPU");
        return take(static_cast<std::size_t>(std::atoi(argv[3])), std::atoi(argv[4]),
                    std::atoi(argv[5]));
    }
    if (argc > 3 || (!computes && std::strcmp(what, "copy") != 0)) {
        std::fprintf(stderr,
                     "usage: gpu_load compute|copy [ORDINAL]\n"
                     "       gpu_load take ORDINAL MIB BLOCKS MILLISECONDS\n");
        return 2;
    }
    check(cudaSetDevice(ordinal), "the GPU");
    if (computes) {
        compute(ordinal);
    } else {
        copy();
    }
    return 0;
}
